"""Words and sentences for message texts: office mail in plain English, and a few other names.

Lists are in the order of frequency: the first word is chosen most often (Zipf's law), so that search indexes and
compression get the term frequencies of real text. In a pattern, `{slot}` is filled from the list of that name, or
generated (dates, amounts, numbers; see `prose`).
"""

from __future__ import annotations


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


FIRST_NAMES = _words("""
Anna Peter Maria John Susan David Julia Thomas Laura Michael Sarah Martin Eva Robert Linda Paul Karen Stefan Nina
Mark Helen George Clara Simon Ruth Frank Alice Daniel Monica Oliver Grace Henry Irene Victor Diana Philip Carol Max
Emma Leon Sofia Hugo Marta Felix Judith Oscar Vera Adam Petra Bruno Ingrid Walter Tessa Gerald Naomi Ivan Rosa Edgar
""")

LAST_NAMES = _words("""
Smith Miller Brown Weber Johnson Martin Keller Wilson Fischer Clark Novak Lewis Hall Young Baker Meyer Carter Evans
Turner Parker Collins Stewart Rossi Morgan Bell Cooper Reed Bailey Jansen Cox Ward Peterson Gray Watson Brooks Kelly
Sanders Price Bennett Wood Barnes Ross Hughes Foster Bryant Hayes Ford Hamilton Graham Wallace Dixon Hunt Palmer
Stone Hawkins Lawson Fowler Nichols Hartley Winter Moss Lang Thornton Ferreira Lindqvist Okafor Tanaka Iyer Duarte
""")

FOREIGN_NAMES = _words("""
Müller Jürgen Zoë François Søren Björn Håkan José Núñez Peña Łukasz Kovář Šimon Dvořák Chloé Renée Gülay Öztürk
Ångström Maïté Ibáñez Groß André Désirée Žižek Þóra İpek Οδυσσέας Παππάς Юлия Иванов 田中 山本
""")

COMPANIES = (
    "Northfield Supplies", "Harbour Logistics", "Kestrel Print", "Oakwood Partners", "Delta Freight",
    "Lindenhof Consulting", "Bluewater Foods", "Summit Insurance", "Meridian Tools", "Castle Office Systems",
    "Brightline Energy", "Westgate Bank", "Pioneer Plastics", "Alder & Sons", "Cobalt Networks", "Riverside Clinic",
    "Granite Construction", "Larkspur Media", "Atlas Motors", "Sable Textiles", "Fairmont Catering", "Orion Lighting",
    "Quarry Lane Press", "Tidewater Shipping", "Vanguard Security", "Juniper Seeds", "Marlow Ceramics",
)  # fmt: skip

PLACES = _words("""
London Berlin Zurich Boston Madrid Vienna Chicago Paris Dublin Hamburg Milan Toronto Prague Lisbon Seattle Oslo Denver
Geneva Leeds Warsaw Antwerp Atlanta Munich Porto Basel Dallas Bristol Cologne Ghent Tampere Aarhus Turin Bilbao
""")

PROJECTS = _words("""
Falcon Horizon Compass Lighthouse Evergreen Keystone Summit Harvest Bridge Voyager Mosaic Anchor Beacon Cascade Orchard
Sextant Monsoon Tandem Pegasus Quartz Saffron Timber Umbra Willow Zephyr
""")

TEAMS = (
    "sales", "finance", "support", "purchasing", "marketing", "the legal team", "personnel", "the warehouse",
    "engineering", "quality", "the front desk", "logistics", "the service desk", "production", "training",
    "the works council", "internal audit", "facilities", "the print room", "export", "the laboratory", "payroll",
)  # fmt: skip

MODIFIERS = _words("""
project new quarterly sales customer budget monthly delivery annual office training travel purchase service contract
price product marketing department weekly supplier insurance software security regional staff printer network
maintenance shipping tax warehouse test pilot production holiday rental design safety legal energy vendor licence
payroll telephone conference cost planning catalogue stock export building equipment hardware database quality
recruitment pension parking cleaning fleet postal credit brochure archive catering exhibition furniture heating
packaging laboratory import subscription emergency compliance translation newsletter apprentice customs visitor seminar
anniversary canteen charity elevator fire-drill garden leasing library museum press railway roof studio tenant
""")

HEADS = _words("""
report meeting plan list order offer schedule review invoice budget agreement request proposal update figures team
contract summary form document project draft presentation date letter result forecast account file problem question
process policy system room price design version decision estimate statement specification agenda deadline campaign
survey application programme analysis payment delivery calculation manual minutes workshop interview checklist overview
quotation complaint inventory timetable prototype evaluation audit questionnaire timesheet memo receipt reservation
certificate warranty leaflet procedure backlog inspection roadmap booking itinerary reimbursement surcharge discount
template appendix roster shipment logo tender directory floorplan badge charter clause dossier ledger milestone
placement pamphlet retrofit settlement shortfall sketch stocktaking syllabus tariff transcript voucher waiver
""")

PLURALS = _words("""
documents figures customers changes questions people numbers details orders comments files offers costs dates copies
results prices invoices suppliers points samples pages contracts options tables drawings forms tickets forecasts
slides visitors offices machines licences boxes cables chairs vehicles brochures photographs certificates statements
drafts candidates addresses passwords subscriptions receipts keys parcels signatures timesheets complaints pallets
catalogues volunteers tenants vouchers batteries monitors envelopes cartridges blinds helmets ladders lockers
""")

VERBS = _words("""
check send finish review update discuss prepare change print confirm sign approve correct complete compare cancel
postpone deliver collect replace order translate copy publish explain summarise file present return extend reserve
archive inspect calculate rewrite circulate shorten reschedule negotiate test install document measure repeat scan
""")

PARTICIPLES = {"send": "sent", "rewrite": "rewritten", "cancel": "cancelled", "copy": "copied", "scan": "scanned"}
"""Participles that adding -ed or -d would get wrong."""

ADJECTIVES = _words("""
new last next final first short open important small large current early late good full clear missing different
detailed revised internal external available complete necessary correct simple urgent attached official separate
annual recent final approved useful expensive cheap reliable quiet preliminary outstanding unexpected reasonable
confidential joint permanent temporary remarkable tentative duplicate overdue seasonal binding oversized
""")

ADVERBS = _words("""
already still now probably also soon finally again really certainly usually quickly carefully briefly clearly
unfortunately separately directly immediately apparently gladly jointly formally quietly reluctantly informally
""")

TITLES = (
    "Sales Manager", "Office Manager", "Project Lead", "Accountant", "Assistant to the Board", "Service Engineer",
    "Head of Purchasing", "Marketing Assistant", "Team Leader, Support", "Legal Adviser", "Plant Manager", "Controller",
    "Personnel Officer", "Logistics Coordinator", "Quality Inspector", "Product Manager", "Trainee", "Archivist",
)  # fmt: skip

SALUTATIONS = (
    "Hi {first},", "Hello {first},", "Dear {first},", "Hi all,", "Dear colleagues,", "{first},", "Hello everybody,",
    "Good morning {first},", "Dear {first} and {first},", "Hi team,", "Good afternoon,", "Dear Mr {last},",
    "Dear Ms {last},", "Hello {first}, hello {first},", "Dear Dr {last},", "To all members of {team}:",
)  # fmt: skip

CLOSINGS = (
    "Regards,", "Best regards,", "Thanks,", "Kind regards,", "Many thanks,", "Best,", "Cheers,", "Sincerely,",
    "Thank you and best regards,", "Yours,", "With best wishes,", "See you soon,", "Have a good weekend,",
    "Greetings from {place},", "Until {weekday},",
)  # fmt: skip

ANSWER_OPENINGS = (
    "Thanks for your message.", "Thank you for the quick answer.", "Yes, that is fine with me.",
    "I agree with what you wrote about the {head}.", "No, I am afraid {weekday} does not work for me.",
    "Sorry for the late reply.", "Thanks, {first}, that helps a lot.", "Good point about the {modifier} {head}.",
    "As to your question: the {head} is {adverb} being {participle}.", "I have just read your mail of {date}.",
    "Agreed, let us {verb} it as you propose.", "Thanks for the {head}, I will come back to you by {weekday}.",
    "You are right, the {modifier} {head} was {adjective}.", "That is good news, thank you.",
    "I had to ask {team} first, and here is what they say.",
)  # fmt: skip

FORWARD_OPENINGS = (
    "For your information.", "FYI.", "Please see what I received from {first} about the {head}.",
    "Could you take care of this? It is about the {modifier} {head}.", "This may interest you, {first}.",
    "I am passing this on to you, since you know the {head} better than I do.", "See the message that follows.",
    "Could {team} answer this, please?", "{first} {last} asked me to send you this {head}.",
    "Please {verb} this and let me know what you think.", "This is what we talked about on {weekday}.",
)  # fmt: skip

SENTENCES = (
    "Please {verb} the {modifier} {head} by {weekday}.",
    "I have {participle} the {modifier} {head} and found {number} {adjective} {plural}.",
    "The {head} for {company} is {adverb} {participle}.",
    "We need the {adjective} {plural} before the {head} on {date}.",
    "Could you {verb} the {plural} and send them to {first} {last}?",
    "The {modifier} {head} will be on {weekday}, {date}, at {time} in room {room}.",
    "{first} {adverb} told me that the {head} costs {amount}.",
    "In {month} we had {number} {plural}, which is {percent} more than last year.",
    "I will be in {place} from {date} and can {verb} the {head} there.",
    "{company} has {participle} its {head} and wants {amount} for the {plural}.",
    "If there are {plural} left, {team} would like to have them for the {modifier} {head}.",
    "The {adjective} version of the {head} is on the server, in the folder of project {project}.",
    "Let me know whether the {head} suits you, or call me on extension {extension}.",
    "There are {number} {plural} in the {head} that nobody has {participle} yet.",
    "As we agreed at the {head}, {team} will {verb} the {plural} until {date}.",
    "Project {project} is {number} days late because of the {modifier} {head}.",
    "The {plural} from {place} have {adverb} arrived, but the {head} has not.",
    "Does {first} know that the {modifier} {head} was {participle}?",
    "My suggestion is to {verb} the {adjective} {plural} first and the {head} afterwards.",
    "We can {verb} it together on {weekday} at {time}, if you have half an hour.",
    "The total is {amount}, {percent} of it for the {modifier} {head}.",
    "According to {team}, the {head} is {adjective} and the {plural} are {adjective}.",
    "Order {reference} for {company} was {participle} on {date}.",
    "I think that the {head} should be {participle} before we {verb} anything else.",
    "Both {first} and {first} have seen the {plural} and have no objections.",
    "Nobody in {place} could {verb} the {modifier} {head}, so I did it myself.",
    "The customer asked for {number} {plural} and the {adjective} {head}.",
    "Please use the {adjective} {head} from now on, not the one of {date}.",
    "I am {adverb} waiting for the {modifier} {head} from {company}.",
    "After the {head} we had {amount} left for {plural} and {plural}.",
    "You will find the {modifier} {head} in {first}'s office, next to the {plural}.",
    "The {head} was {participle} {adverb}, and {percent} of the {plural} are still {adjective}.",
    "What do you think of the {adjective} {head} that {company} has {participle}?",
    "It would help if {team} could {verb} the {plural} by {time} on {weekday}.",
    "{first} {last} from {company} called about the {modifier} {head}; please call back.",
    "Since {month} the {plural} have become {percent} more expensive.",
    "Invoice {reference} over {amount} is {adverb} open.",
    "The {modifier} {head} and the {modifier} {head} do not agree; could you {verb} them?",
    "On {date} the office in {place} will be closed for the {modifier} {head}.",
    "We have room for {number} more {plural}, not counting those of {company}.",
    "I would rather {verb} the {head} than {verb} all {number} {plural} again.",
    "Our {modifier} {head} is valid until {date}; after that it must be {participle}.",
    "For the {head} in {place} we still need the {adjective} {modifier} {head}.",
    "{team} will not {verb} the {plural} without the {participle} {head}.",
    "That makes {number} {plural} at {amount} each.",
)

SHORT_SENTENCES = (
    "Thank you.", "Please advise.", "Any ideas?", "More on {weekday}.", "This is {adjective}.", "Please {verb} it.",
    "I will {verb} it.", "What about {first}?", "Call me, please.", "See above.", "No hurry.", "Is that all right?",
    "Project {project} can wait.", "{first} knows more.", "The {head} is {adjective}.", "We can {verb} it.",
    "I hope this helps.", "Thanks for your help with the {head}.", "Let us talk about it at {time}.",
)  # fmt: skip

ITEMS = (
    "{number} {plural} for {team}", "{verb} the {modifier} {head} ({first})", "{modifier} {head}: {amount}",
    "{head}, {adjective}, until {date}", "{plural} and {plural} from {company}", "{weekday} {time}: {modifier} {head}",
    "{number} {plural}, {percent} of them {participle}", "room {room}, {first} {last}",
)  # fmt: skip

ODD_LINES = (
    "From {weekday} on, {team} will be in room {room}.",
    "From {first}: the {head} is {participle}.",
    ".docx or .xlsx, please, no other {plural}.",
    "... and the {modifier} {head}, of course.",
    "..",
    ".",
    "* {number} EXISTS is what the {head} says, whatever that means.",
    "> The {modifier} {head} is {adjective}, says {first}.",
    ") was missing in the {head}, see page {number}.",
)
"""Lines that careless servers and clients trip over: dots at the start, "From ", "* " and the like."""

SUBJECTS = (
    "{Modifier} {head}", "{Head} for {company}", "{Modifier} {head} on {date}", "{Head} {reference}",
    "Question about the {modifier} {head}", "Project {project}: {head}", "{Modifier} {head} for {month}",
    "Please {verb} the {head} by {weekday}", "{Number} {plural} for {team}", "Meeting on {weekday} at {time}",
    "{Adjective} {head} from {place}", "{Modifier} {plural}, {adjective} version", "Your {head} of {date}",
    "Visit of {first} {last}", "{Project}: {number} {plural} to {verb}", "Invoice {reference}, {company}",
)  # fmt: skip

EVENTS = (
    "{Modifier} {head}", "Meeting with {first} {last}", "{Project}: {head}", "{Modifier} {head} with {company}",
    "Call {company} about the {head}", "Lunch with {first}", "{place}: {modifier} {head}", "Weekly meeting of {team}",
)  # fmt: skip

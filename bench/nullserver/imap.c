/* The null server's IMAP (RFC 3501, with RFC 2177, 4315, 4959, 6154, 6851, 7888): enough for clients to work with.
 *
 * The Inbox is counted: what comes by APPEND and SMTP is there, what is moved or expunged by UID is gone. All other
 * folders always hold the same; flags are never kept.
 */

#define _GNU_SOURCE
#include "null.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define CAPABILITIES "IMAP4rev1 LITERAL+ SASL-IR IDLE MOVE UIDPLUS SPECIAL-USE NAMESPACE CHILDREN ID ENABLE UNSELECT AUTH=PLAIN"

/* A piece of a command: a quoted string or a literal without what encloses it, a list with its parentheses. */
struct word {
    char *data;
    size_t length;
};

struct command {
    struct connection *connection;
    char *at, *end; /* what is left of it */
    struct word tag;
    bool by_uid;
};

static bool is(struct word word, const char *name) {
    return word.length == strlen(name) && !strncasecmp(word.data, name, word.length);
}

static bool starts(struct word word, const char *name) {
    return word.length >= strlen(name) && !strncasecmp(word.data, name, strlen(name));
}

static bool literal_at_end(const char *line, const char *end, uint64_t *length, bool *waits) {
    if (end <= line || end[-1] != '}') return false;
    const char *at = end - 1;
    *waits = at[-1] != '+';
    if (!*waits) at--;
    uint64_t number = 0, unit = 1;
    const char *digits = at;
    for (; at > line && at[-1] >= '0' && at[-1] <= '9' && unit < 1000000000000ull; unit *= 10) {
        number += (uint64_t)(*--at - '0') * unit;
    }
    if (at == digits || at == line || at[-1] != '{') return false;
    *length = number;
    return true;
}

/* The next word; false when there is none. Escapes in a quoted string are undone in place. */
static bool next_word(struct command *command, struct word *word) {
    char *at = command->at, *end = command->end;
    while (at < end && *at == ' ') at++;
    if (at == end || *at == '\r' || *at == '\n') return false;
    word->data = at;
    if (*at == '"') {
        char *to = ++at;
        word->data = to;
        while (at < end && *at != '"') {
            if (*at == '\\' && at + 1 < end) at++;
            *to++ = *at++;
        }
        word->length = (size_t)(to - word->data);
        command->at = at < end ? at + 1 : end;
    } else if (*at == '{') {
        char *line = memchr(at, '\n', (size_t)(end - at));
        uint64_t length;
        bool waits;
        if (!line || line == at || !literal_at_end(at, line - 1, &length, &waits) || length > (uint64_t)(end - line - 1)) return false;
        *word = (struct word){line + 1, length};
        command->at = line + 1 + length;
    } else {
        int depth = 0;
        bool quoted = false;
        for (; at < end && *at != '\r' && *at != '\n'; at++) {
            if (*at == '"') quoted = !quoted;
            if (quoted) continue;
            if (*at == '(' || *at == '[') depth++;
            if (*at == ')' || *at == ']') depth--;
            if (*at == ' ' && depth <= 0) break;
        }
        word->length = (size_t)(at - word->data);
        command->at = at;
    }
    return true;
}

static void done(struct command *command, const char *text) {
    put(command->tag.data, command->tag.length);
    say(" OK %s\r\n", text);
}

static void refuse(struct command *command, const char *status, const char *text) {
    put(command->tag.data, command->tag.length);
    say(" %s %s\r\n", status, text);
}

static void put_string(const char *text, size_t length) {
    put("\"", 1);
    for (size_t at = 0; at < length; at++) {
        if (text[at] == '"' || text[at] == '\\') put("\\", 1);
        if (text[at] != '\r' && text[at] != '\n') put(text + at, 1);
    }
    put("\"", 1);
}

void imap_greet(void) {
    say("* OK [CAPABILITY " CAPABILITIES "] The null server is ready.\r\n");
}

/* --- sets of numbers --- */

struct range {
    uint32_t low, high;
};

/* The next range of a set, "*" being `last`; false at its end. */
static bool next_range(struct word *set, uint32_t last, struct range *range) {
    uint32_t numbers[2];
    int count = 0;
    if (!set->length) return false;
    do {
        if (count && set->length) set->data++, set->length--; /* the colon */
        uint64_t number = 0;
        if (set->length && *set->data == '*') {
            number = last;
            set->data++, set->length--;
        }
        while (set->length && *set->data >= '0' && *set->data <= '9') {
            number = number * 10 + (uint64_t)(*set->data - '0');
            set->data++, set->length--;
        }
        numbers[count++] = number > UINT32_MAX ? UINT32_MAX : (uint32_t)number;
    } while (count < 2 && set->length && *set->data == ':');
    if (set->length && *set->data == ',') set->data++, set->length--; else set->length = 0;
    *range = (struct range){numbers[0], numbers[count - 1]};
    if (range->low > range->high) *range = (struct range){range->high, range->low};
    return true;
}

static struct view open_view(const struct connection *connection) {
    if (connection->in_inbox) return inbox_view(inbox_of(connection->user));
    return (struct view){1, connection->folder_messages + 1, 0, NULL};
}

typedef void visitor(struct command *, uint32_t number, uint32_t uid, void *about);

/* Visit the messages of a set, which are numbers or, by_uid, UIDs. */
static void visit(struct command *command, struct word set, visitor *look, void *about) {
    struct view view = open_view(command->connection);
    uint32_t exists = view_exists(&view);
    struct range range;
    if (!exists) return;
    while (next_range(&set, command->by_uid ? view_uid(&view, exists) : exists, &range)) {
        uint32_t low = range.low, high = range.high;
        if (!command->by_uid) {
            if (!low) low = 1;
            if (high > exists) high = exists;
            if (low > high) continue;
            low = view_uid(&view, low), high = view_uid(&view, high);
        }
        if (low < view.base) low = view.base;
        if (high >= view.next) high = view.next - 1;
        for (uint32_t uid = low, number = 0; uid <= high; uid++) {
            if (view_removed(&view, uid)) continue;
            number = number ? number + 1 : view_number(&view, uid);
            look(command, number, uid, about);
        }
    }
}

/* --- folders --- */

static uint32_t messages_of(struct word name) {
    return is(name, "Sent Items") || is(name, "Deleted Items") || is(name, "Calendar") ? 1 : options.folder_messages;
}

void imap_tell_news(struct connection *connection) {
    if (!connection->in_inbox) return;
    struct view view = inbox_view(inbox_of(connection->user));
    uint32_t exists = view_exists(&view);
    if (exists > connection->told) {
        say("* %u EXISTS\r\n", exists);
        if (options.stamped) say("* OK [SENT %llu] pushed\r\n", (unsigned long long)now_ns());
    }
    connection->told = exists;
}

static void leave(struct connection *connection) {
    free(connection->folder);
    connection->folder = NULL;
    connection->in_inbox = 0;
}

static void select_folder(struct command *command, bool read_only) {
    struct connection *connection = command->connection;
    struct word name;
    leave(connection);
    if (!next_word(command, &name)) {
        refuse(command, "BAD", "Which?");
        return;
    }
    connection->in_inbox = is(name, "INBOX");
    connection->folder = strndup(name.data, name.length);
    connection->folder_messages = messages_of(name);
    struct view view = open_view(connection);
    connection->told = view_exists(&view);
    say("* FLAGS (\\Answered \\Flagged \\Deleted \\Seen \\Draft $Forwarded)\r\n"
        "* OK [PERMANENTFLAGS (\\Answered \\Flagged \\Deleted \\Seen \\Draft $Forwarded \\*)] None is kept.\r\n"
        "* %u EXISTS\r\n* 0 RECENT\r\n* OK [UIDVALIDITY 1] Always.\r\n* OK [UIDNEXT %u] Next.\r\n", connection->told, view.next);
    done(command, read_only ? "[READ-ONLY] Opened." : "[READ-WRITE] Opened.");
}

static void list_one(const char *verb, const char *attributes, const char *name) {
    say("* %s (\\HasNoChildren%s) \"/\" \"%s\"\r\n", verb, attributes, name);
}

static void list(struct command *command, const char *verb) {
    struct word reference, pattern;
    if (!next_word(command, &reference) || !next_word(command, &pattern)) {
        refuse(command, "BAD", "Which?");
        return;
    }
    bool all = memchr(pattern.data, '*', pattern.length) || memchr(pattern.data, '%', pattern.length);
    if (!pattern.length) say("* %s (\\Noselect) \"/\" \"\"\r\n", verb);
    if (all || is(pattern, "INBOX")) list_one(verb, "", "INBOX");
    if (all || is(pattern, "Sent Items")) list_one(verb, " \\Sent", "Sent Items");
    if (all || is(pattern, "Deleted Items")) list_one(verb, " \\Trash", "Deleted Items");
    if (all || is(pattern, "Calendar")) list_one(verb, "", "Calendar");
    for (uint32_t folder = 1; folder <= options.folders; folder++) {
        char name[32];
        snprintf(name, sizeof name, "Folder %02u", folder);
        if (all || is(pattern, name)) list_one(verb, "", name);
    }
    done(command, "Listed.");
}

static void status(struct command *command) {
    struct word name, items;
    if (!next_word(command, &name) || !next_word(command, &items)) {
        refuse(command, "BAD", "Of what?");
        return;
    }
    struct view view = {1, messages_of(name) + 1, 0, NULL};
    if (is(name, "INBOX")) view = inbox_view(inbox_of(command->connection->user));
    say("* STATUS ");
    put_string(name.data, name.length);
    say(" (");
    struct command list = {.at = items.data + 1, .end = items.data + items.length - 1};
    const char *space = "";
    for (struct word item; items.length > 2 && next_word(&list, &item); space = " ") {
        uint32_t value = is(item, "MESSAGES") ? view_exists(&view) : is(item, "UIDNEXT") ? view.next : is(item, "UIDVALIDITY");
        say("%s%.*s %u", space, (int)item.length, item.data, value);
    }
    say(")\r\n");
    done(command, "Told.");
}

/* --- FETCH --- */

static void put_address_list(const struct message *message, const char *field) {
    char value[SLOT_BYTES];
    size_t length = header_field(message->header, message->header_length, field, value, sizeof value);
    if (!length) {
        put("NIL", 3);
        return;
    }
    put("(", 1);
    for (char *rest = value, *one; (one = strsep(&rest, ","));) {
        char *open = strchr(one, '<'), *close = open ? strchr(open, '>') : NULL;
        char *address = open && close ? open + 1 : one + strspn(one, " ");
        size_t size = open && close ? (size_t)(close - address) : strcspn(address, " ");
        char *at = memchr(address, '@', size);
        if (!at) continue;
        put("(NIL NIL ", 9);
        put_string(address, (size_t)(at - address));
        put(" ", 1);
        put_string(at + 1, size - (size_t)(at + 1 - address));
        put(")", 1);
    }
    put(")", 1);
}

static void put_field(const struct message *message, const char *field) {
    char value[SLOT_BYTES];
    size_t length = header_field(message->header, message->header_length, field, value, sizeof value);
    if (length) put_string(value, length); else put("NIL", 3);
}

static void put_envelope(const struct message *message) {
    put("(", 1);
    put_field(message, "Date");
    put(" ", 1);
    put_field(message, "Subject");
    for (int times = 0; times < 3; times++) {
        put(" ", 1);
        put_address_list(message, "From");
    }
    put(" ", 1);
    put_address_list(message, "To");
    put(" NIL NIL NIL ", 13);
    put_field(message, "Message-ID");
    put(")", 1);
}

/* The fields of a header that a list names, or all others. */
static size_t chosen_fields(const struct message *message, struct word names, bool others, char *to) {
    const char *header = message->header, *stop = header + message->header_length - 2;
    size_t used = 0;
    while (header < stop) {
        const char *end = header;
        do {
            end = memchr(end, '\n', (size_t)(stop - end));
            end = end ? end + 1 : stop;
        } while (end < stop && (*end == ' ' || *end == '\t'));
        const char *colon = memchr(header, ':', (size_t)(end - header));
        bool named = false;
        struct command list = {.at = names.data + 1, .end = names.data + names.length - 1};
        for (struct word name; colon && next_word(&list, &name);) {
            if (name.length == (size_t)(colon - header) && !strncasecmp(name.data, header, name.length)) named = true;
        }
        if (named != others) {
            memcpy(to + used, header, (size_t)(end - header));
            used += (size_t)(end - header);
        }
        header = end;
    }
    memcpy(to + used, "\r\n", 2);
    return used + 2;
}

/* BODY[...]: `section` is what stands between the brackets, `partial` what follows them. */
static void put_section(const struct message *message, struct word section, struct word partial) {
    char chosen[sizeof message->header + 2];
    const char *first = message->header, *second = canned_body;
    size_t first_length = message->header_length, second_length = options.body_bytes;
    if (is(section, "HEADER")) {
        second_length = 0;
    } else if (is(section, "TEXT") || is(section, "1")) {
        first_length = 0;
    } else if (is(section, "MIME") || is(section, "1.MIME")) {
        first = canned_mime, first_length = strlen(canned_mime), second_length = 0;
    } else if (starts(section, "HEADER.FIELDS")) {
        char *open = memchr(section.data, '(', section.length);
        struct word names = {open, open ? section.length - (size_t)(open - section.data) : 0};
        second_length = 0;
        first_length = names.length < 2 ? 0 : chosen_fields(message, names, starts(section, "HEADER.FIELDS.NOT"), chosen);
        first = chosen;
    } else if (section.length) {
        say("BODY[%.*s] NIL", (int)section.length, section.data);
        return;
    }
    say("BODY[%.*s]", (int)section.length, section.data);
    if (partial.length > 2) {
        char *after;
        size_t begin = strtoul(partial.data + 1, &after, 10), most = *after == '.' ? strtoul(after + 1, NULL, 10) : 0;
        size_t skipped = begin < first_length ? begin : first_length;
        first += skipped, first_length -= skipped, begin -= skipped;
        skipped = begin < second_length ? begin : second_length;
        second += skipped, second_length -= skipped;
        if (first_length > most) first_length = most;
        if (second_length > most - first_length) second_length = most - first_length;
        say("<%lu>", strtoul(partial.data + 1, NULL, 10));
    }
    say(" {%zu}\r\n", first_length + second_length);
    put(first, first_length);
    put(second, second_length);
}

static void put_structure(bool extended) {
    say("%s (\"TEXT\" \"PLAIN\" (\"CHARSET\" \"us-ascii\") NIL NIL \"7BIT\" %u %u%s)", extended ? "BODYSTRUCTURE" : "BODY",
        options.body_bytes, (options.body_bytes + 73) / 74, extended ? " NIL NIL NIL NIL" : "");
}

static void put_item(struct word item, const struct message *message, uint32_t uid) {
    static const struct word whole = {0};
    if (is(item, "UID")) {
        say("UID %u", uid);
    } else if (is(item, "FLAGS")) {
        say("FLAGS ()");
    } else if (is(item, "INTERNALDATE")) {
        say("INTERNALDATE \"01-Nov-2025 00:00:00 +0000\"");
    } else if (is(item, "RFC822.SIZE")) {
        say("RFC822.SIZE %zu", message->header_length + options.body_bytes);
    } else if (is(item, "ENVELOPE")) {
        say("ENVELOPE ");
        put_envelope(message);
    } else if (is(item, "BODY") || is(item, "BODYSTRUCTURE")) {
        put_structure(item.length > 4);
    } else if (starts(item, "BODY[") || starts(item, "BODY.PEEK[")) {
        char *open = memchr(item.data, '[', item.length), *close = memrchr(item.data, ']', item.length);
        struct word section = {open + 1, close ? (size_t)(close - open - 1) : 0};
        struct word partial = {close ? close + 1 : NULL, close ? (size_t)(item.data + item.length - close - 1) : 0};
        put_section(message, section, partial);
    } else if (is(item, "RFC822")) {
        put_section(message, whole, whole);
    } else {
        say("%.*s NIL", (int)item.length, item.data);
    }
}

static void fetch_one(struct command *command, uint32_t number, uint32_t uid, void *about) {
    const struct word *items = about;
    const struct connection *connection = command->connection;
    struct message message;
    message_read(&message, connection->user, connection->in_inbox, connection->folder, uid);
    struct command list = {.at = items->data, .end = items->data + items->length};
    if (items->length && *items->data == '(') list.at++, list.end--;
    bool with_uid = false, any = false;
    say("* %u FETCH (", number);
    for (struct word item; next_word(&list, &item); any = true) {
        if (any) put(" ", 1);
        if (is(item, "UID")) with_uid = true;
        put_item(item, &message, uid);
    }
    if (command->by_uid && !with_uid) say("%sUID %u", any ? " " : "", uid);
    say(")\r\n");
}

static void fetch(struct command *command) {
    static char fast[] = "(FLAGS INTERNALDATE RFC822.SIZE)", all[] = "(FLAGS INTERNALDATE RFC822.SIZE ENVELOPE)",
                full[] = "(FLAGS INTERNALDATE RFC822.SIZE ENVELOPE BODY)";
    struct word set, items;
    if (!next_word(command, &set) || !next_word(command, &items)) {
        refuse(command, "BAD", "What?");
        return;
    }
    if (is(items, "FAST")) items = (struct word){fast, sizeof fast - 1};
    if (is(items, "ALL")) items = (struct word){all, sizeof all - 1};
    if (is(items, "FULL")) items = (struct word){full, sizeof full - 1};
    visit(command, set, fetch_one, &items);
    done(command, "Fetched.");
}

/* --- STORE, SEARCH, COPY, MOVE, EXPUNGE --- */

static void store_one(struct command *command, uint32_t number, uint32_t uid, void *about) {
    const struct word *flags = about;
    say("* %u FETCH (", number);
    if (command->by_uid) say("UID %u ", uid);
    say("FLAGS %.*s)\r\n", (int)flags->length, flags->data);
}

static void store(struct command *command) {
    struct word set, how, flags;
    if (!next_word(command, &set) || !next_word(command, &how) || !next_word(command, &flags)) {
        refuse(command, "BAD", "What?");
        return;
    }
    if (!memmem(how.data, how.length, ".S", 2) && !memmem(how.data, how.length, ".s", 2)) visit(command, set, store_one, &flags);
    done(command, "Stored.");
}

static void found_one(struct command *command, uint32_t number, uint32_t uid, void *tell_uid) {
    (void)command;
    say(" %u", *(bool *)tell_uid ? uid : number);
}

static void search(struct command *command) {
    static char everything[] = "1:*";
    struct word key, set = {everything, 3};
    bool tell_uid = command->by_uid, found = false;
    while (next_word(command, &key)) { /* ALL, a set and UID with a set find; every other key finds nothing */
        if (is(key, "UID")) {
            found = next_word(command, &set), command->by_uid = true;
        } else if (is(key, "ALL") || is(key, "UNDELETED")) {
            found = true, command->by_uid = false;
        } else if (*key.data >= '0' && *key.data <= '9') {
            found = true, set = key, command->by_uid = false;
        } else {
            found = false;
            break;
        }
    }
    say("* SEARCH");
    if (found) visit(command, set, found_one, &tell_uid);
    say("\r\n");
    done(command, "Searched.");
}

/* UIDs that a command copies or removes, as the set that the answer names. */
struct taken {
    char uids[8192];
    size_t length;
    uint32_t count, room;
    uint32_t *each;
};

static void take_one(struct command *command, uint32_t number, uint32_t uid, void *about) {
    (void)command, (void)number;
    struct taken *taken = about;
    if (taken->count == taken->room) {
        taken->room = taken->room ? 2 * taken->room : 64;
        taken->each = realloc(taken->each, taken->room * sizeof *taken->each);
        if (!taken->each) abort();
    }
    taken->each[taken->count++] = uid;
    if (taken->length + 16 < sizeof taken->uids) {
        taken->length += (size_t)snprintf(taken->uids + taken->length, 16, "%s%u", taken->count > 1 ? "," : "", uid);
    }
}

static void expunge_taken(struct command *command, const struct taken *taken) {
    struct connection *connection = command->connection;
    if (!connection->in_inbox) return;
    struct inbox *inbox = inbox_of(connection->user);
    inbox_lock(inbox);
    for (uint32_t at = taken->count; at-- > 0;) { /* from the end: the numbers of those before stay */
        struct view view = inbox_view(inbox);
        uint32_t number = view_number(&view, taken->each[at]);
        if (inbox_remove(inbox, taken->each[at])) {
            say("* %u EXPUNGE\r\n", number);
            connection->told--;
        }
    }
    inbox_unlock(inbox);
}

static void transfer(struct command *command, bool move) {
    struct word set, target;
    if (!next_word(command, &set) || !next_word(command, &target)) {
        refuse(command, "BAD", "Where to?");
        return;
    }
    struct taken taken = {0};
    visit(command, set, take_one, &taken);
    char code[sizeof taken.uids + 128] = "";
    if (taken.count) {
        struct inbox *inbox = inbox_of(command->connection->user);
        uint32_t first = __atomic_fetch_add(&inbox->copied, taken.count, __ATOMIC_RELAXED);
        snprintf(code, sizeof code, "[COPYUID 1 %s %u:%u] ", taken.uids, first, first + taken.count - 1);
    }
    if (move) {
        if (*code) put("* OK ", 5), put(code, strlen(code)), put("Moved.\r\n", 8);
        expunge_taken(command, &taken);
        done(command, "Moved.");
    } else {
        put(command->tag.data, command->tag.length);
        put(" OK ", 4), put(code, strlen(code)), put("Copied.\r\n", 9);
    }
    free(taken.each);
}

static void expunge(struct command *command) {
    struct word set;
    if (command->by_uid && next_word(command, &set)) { /* without UIDs: nothing is ever marked as deleted */
        struct taken taken = {0};
        visit(command, set, take_one, &taken);
        expunge_taken(command, &taken);
        free(taken.each);
    }
    done(command, "Expunged.");
}

/* --- APPEND --- */

/* The line of an APPEND up to its literal has come. */
static void append_begin(struct connection *connection, struct word tag, struct word folder, uint64_t length, bool waits) {
    sink_open(connection);
    connection->sink->left = length;
    connection->state = APPENDING;
    snprintf(connection->tag, sizeof connection->tag, "%.*s", (int)tag.length, tag.data);
    connection->sink->recipients_count = is(folder, "INBOX");
    if (waits) say("+ OK\r\n");
}

static void append_end(struct connection *connection) {
    struct sink *sink = connection->sink;
    uint32_t uid;
    counts[IMAP_APPEND]++;
    if (sink->recipients_count) {
        uid = inbox_add(connection->user, sink->head, sink->kept);
        imap_tell_news(connection);
    } else {
        uid = __atomic_fetch_add(&inbox_of(connection->user)->copied, 1, __ATOMIC_RELAXED);
    }
    say("%s OK [APPENDUID 1 %u] Appended.\r\n", connection->tag, uid);
    sink_close(connection);
    connection->state = COMMAND;
}

/* --- commands --- */

static void log_on(struct command *command, struct word name) {
    command->connection->user = user_of(name.data, name.length);
    command->connection->authenticated = 1;
    done(command, "[CAPABILITY " CAPABILITIES "] Welcome.");
}

/* The name of a response of SASL PLAIN (RFC 4616), decoded in place; passwords are not looked at. */
static struct word plain_name(struct word response) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t bits = 0, have = 0;
    size_t used = 0;
    for (size_t at = 0; at < response.length; at++) {
        const char *digit = response.data[at] ? strchr(digits, response.data[at]) : NULL;
        if (!digit) break;
        bits = bits << 6 | (uint32_t)(digit - digits);
        if ((have += 6) >= 8) response.data[used++] = (char)(bits >> (have -= 8));
    }
    char *name = memchr(response.data, 0, used);
    if (!name) return (struct word){response.data, 0};
    name++;
    char *end = memchr(name, 0, used - (size_t)(name - response.data));
    return (struct word){name, end ? (size_t)(end - name) : 0};
}

static void run(struct command *command, struct word verb) {
    struct connection *connection = command->connection;
    struct word word;
    struct inbox *inbox;
    if (is(verb, "CAPABILITY")) {
        counts[IMAP_CAPABILITY]++;
        say("* CAPABILITY " CAPABILITIES "\r\n");
        done(command, "Told.");
    } else if (is(verb, "LOGOUT")) {
        counts[IMAP_LOGOUT]++;
        say("* BYE See you.\r\n");
        done(command, "Gone.");
        connection->closing = 1;
    } else if (is(verb, "ID") || is(verb, "ENABLE")) {
        counts[IMAP_OTHER]++;
        say(is(verb, "ID") ? "* ID (\"name\" \"null\")\r\n" : "* ENABLED\r\n");
        done(command, "Told.");
    } else if (is(verb, "LOGIN")) {
        counts[IMAP_LOGIN]++;
        if (next_word(command, &word)) log_on(command, word); else refuse(command, "BAD", "Who?");
    } else if (is(verb, "AUTHENTICATE")) {
        counts[IMAP_AUTHENTICATE]++;
        if (!next_word(command, &word) || !is(word, "PLAIN")) {
            refuse(command, "NO", "PLAIN only.");
        } else if (next_word(command, &word)) {
            log_on(command, plain_name(word));
        } else {
            snprintf(connection->tag, sizeof connection->tag, "%.*s", (int)command->tag.length, command->tag.data);
            connection->state = AUTHENTICATING;
            say("+ \r\n");
        }
    } else if (is(verb, "NOOP")) {
        counts[IMAP_NOOP]++;
        imap_tell_news(connection);
        done(command, "Nothing.");
    } else if (!connection->authenticated) {
        counts[IMAP_OTHER]++;
        refuse(command, "NO", "Log on first.");
    } else if (is(verb, "LIST") || is(verb, "LSUB")) {
        counts[IMAP_LIST]++;
        list(command, is(verb, "LIST") ? "LIST" : "LSUB");
    } else if (is(verb, "SELECT") || is(verb, "EXAMINE")) {
        counts[IMAP_SELECT]++;
        select_folder(command, is(verb, "EXAMINE"));
    } else if (is(verb, "STATUS")) {
        counts[IMAP_STATUS]++;
        status(command);
    } else if (is(verb, "NAMESPACE")) {
        counts[IMAP_OTHER]++;
        say("* NAMESPACE ((\"\" \"/\")) NIL NIL\r\n");
        done(command, "Told.");
    } else if (is(verb, "CREATE") || is(verb, "DELETE") || is(verb, "RENAME") || is(verb, "SUBSCRIBE") || is(verb, "UNSUBSCRIBE")) {
        counts[IMAP_OTHER]++;
        done(command, "As you say.");
    } else if (!connection->folder) {
        counts[IMAP_OTHER]++;
        refuse(command, "BAD", "No such command here.");
    } else if (is(verb, "IDLE")) {
        counts[IMAP_IDLE]++;
        snprintf(connection->tag, sizeof connection->tag, "%.*s", (int)command->tag.length, command->tag.data);
        connection->state = IDLING;
        idling_begin(connection);
        say("+ idling\r\n");
        imap_tell_news(connection);
    } else if (is(verb, "CLOSE") || is(verb, "UNSELECT") || is(verb, "CHECK")) {
        counts[IMAP_CLOSE]++;
        if (!is(verb, "CHECK")) leave(connection);
        done(command, "Closed.");
    } else {
        inbox = connection->in_inbox ? inbox_of(connection->user) : NULL;
        imap_tell_news(connection);
        if (is(verb, "FETCH")) {
            counts[IMAP_FETCH]++;
            if (inbox) inbox_lock(inbox);
            fetch(command);
            if (inbox) inbox_unlock(inbox);
        } else if (is(verb, "STORE")) {
            counts[IMAP_STORE]++;
            store(command);
        } else if (is(verb, "SEARCH")) {
            counts[IMAP_SEARCH]++;
            search(command);
        } else if (is(verb, "COPY") || is(verb, "MOVE")) {
            counts[is(verb, "COPY") ? IMAP_COPY : IMAP_MOVE]++;
            transfer(command, is(verb, "MOVE"));
        } else if (is(verb, "EXPUNGE")) {
            counts[IMAP_EXPUNGE]++;
            expunge(command);
        } else {
            counts[IMAP_OTHER]++;
            refuse(command, "BAD", "No such command.");
        }
    }
}

/* A line that belongs to no command: what follows "+". */
static size_t take_line(struct connection *connection, char *data, size_t length) {
    char *end = memchr(data, '\n', length);
    if (!end) return 0;
    struct command command = {connection, data, end, {connection->tag, strlen(connection->tag)}, false};
    struct word line = {data, 0};
    next_word(&command, &line);
    if (connection->state == IDLING) {
        idling_end(connection);
        connection->state = COMMAND;
        imap_tell_news(connection);
        if (is(line, "DONE")) done(&command, "Idled."); else refuse(&command, "BAD", "DONE?");
    } else if (connection->state == AUTHENTICATING) {
        connection->state = COMMAND;
        log_on(&command, plain_name(line));
    } else { /* what follows the literal of an APPEND */
        append_end(connection);
    }
    return (size_t)(end - data) + 1;
}

/* Take one command, or the line of an APPEND; 0 when it is not complete. */
static size_t take_command(struct connection *connection, char *data, size_t length) {
    size_t begin = 0;
    for (;;) {
        char *end = begin <= length ? memchr(data + begin, '\n', length - begin) : NULL;
        if (!end) return 0;
        size_t line = (size_t)(end - data) + 1;
        uint64_t literal;
        bool waits;
        struct command command = {connection, data, end + 1, {0}, false};
        struct word verb, folder;
        if (!literal_at_end(data + begin, end > data && end[-1] == '\r' ? end - 1 : end, &literal, &waits)) {
            connection->continued = 0;
            if (!next_word(&command, &command.tag)) return line; /* an empty line */
            if (!next_word(&command, &verb)) {
                refuse(&command, "BAD", "What?");
                return line;
            }
            if (is(verb, "UID")) command.by_uid = next_word(&command, &verb);
            run(&command, verb);
            return line;
        }
        if (next_word(&command, &command.tag) && next_word(&command, &verb) && is(verb, "APPEND")) {
            if (next_word(&command, &folder) && *folder.data != '{') {
                connection->continued = 0;
                append_begin(connection, command.tag, folder, literal, waits);
                return line;
            }
        }
        if (literal > LONGEST_COMMAND) {
            connection->closing = 1;
            return length;
        }
        if (waits && connection->continued < line) {
            connection->continued = (uint32_t)line;
            say("+ OK\r\n");
        }
        begin = line + literal;
    }
}

size_t imap_take(struct connection *connection, char *data, size_t length) {
    size_t at = 0, taken = 1;
    while (at < length && taken && !connection->closing) {
        if (connection->state == APPENDING) {
            struct sink *sink = connection->sink;
            taken = length - at < sink->left ? length - at : (size_t)sink->left;
            sink_keep(sink, data + at, taken);
            sink->left -= taken;
            if (!sink->left) connection->state = APPENDED;
        } else if (connection->state == COMMAND) {
            taken = take_command(connection, data + at, length - at);
        } else {
            taken = take_line(connection, data + at, length - at);
        }
        at += taken;
    }
    return connection->closing ? length : at;
}

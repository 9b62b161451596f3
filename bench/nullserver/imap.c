/* The null server's IMAP (RFC 3501, with RFC 2177, 4315, 4959, 6154, 6851, 7888): enough for clients to work with.
 *
 * The Inbox is counted: what comes by APPEND and SMTP is there, what is moved or expunged by UID is gone. All other
 * folders always hold the same; flags are never kept.
 */

#define _GNU_SOURCE
#include "imap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define CAPABILITIES "IMAP4rev1 LITERAL+ SASL-IR IDLE MOVE UIDPLUS SPECIAL-USE NAMESPACE CHILDREN ID ENABLE UNSELECT AUTH=PLAIN"

bool word_is(struct word word, const char *name) {
    return word.length == strlen(name) && !strncasecmp(word.data, name, word.length);
}

bool word_starts(struct word word, const char *name) {
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
bool next_word(struct command *command, struct word *word) {
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

void done(struct command *command, const char *text) {
    put(command->tag.data, command->tag.length);
    say(" OK %s\r\n", text);
}

void refuse(struct command *command, const char *status, const char *text) {
    put(command->tag.data, command->tag.length);
    say(" %s %s\r\n", status, text);
}

void put_string(const char *text, size_t length) {
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
    if (connection->in_inbox) return inbox_view(inbox_of(connection->user), connection->told);
    return (struct view){1, connection->folder_messages + 1, 0, NULL};
}

/* Visit the messages of a set, which are numbers or, by_uid, UIDs. */
void visit(struct command *command, struct word set, visitor *look, void *about) {
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
    return word_is(name, "Sent Items") || word_is(name, "Deleted Items") || word_is(name, "Calendar") ? 1 : options.folder_messages;
}

void imap_tell_news(struct connection *connection) {
    if (!connection->in_inbox) return;
    uint32_t next = inbox_next(inbox_of(connection->user));
    if (next == connection->told) return;
    connection->told = next;
    struct view view = open_view(connection);
    say("* %u EXISTS\r\n", view_exists(&view));
    if (options.stamped) say("* OK [SENT %llu] pushed\r\n", (unsigned long long)now_ns());
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
    connection->in_inbox = word_is(name, "INBOX");
    connection->folder = strndup(name.data, name.length);
    connection->folder_messages = messages_of(name);
    if (connection->in_inbox) connection->told = inbox_next(inbox_of(connection->user));
    struct view view = open_view(connection);
    say("* FLAGS (\\Answered \\Flagged \\Deleted \\Seen \\Draft $Forwarded)\r\n"
        "* OK [PERMANENTFLAGS (\\Answered \\Flagged \\Deleted \\Seen \\Draft $Forwarded \\*)] None is kept.\r\n"
        "* %u EXISTS\r\n* 0 RECENT\r\n* OK [UIDVALIDITY 1] Always.\r\n* OK [UIDNEXT %u] Next.\r\n", view_exists(&view), view.next);
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
    if (all || word_is(pattern, "INBOX")) list_one(verb, "", "INBOX");
    if (all || word_is(pattern, "Sent Items")) list_one(verb, " \\Sent", "Sent Items");
    if (all || word_is(pattern, "Deleted Items")) list_one(verb, " \\Trash", "Deleted Items");
    if (all || word_is(pattern, "Calendar")) list_one(verb, "", "Calendar");
    for (uint32_t folder = 1; folder <= options.folders; folder++) {
        char name[32];
        snprintf(name, sizeof name, "Folder %02u", folder);
        if (all || word_is(pattern, name)) list_one(verb, "", name);
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
    if (word_is(name, "INBOX")) view = inbox_view(inbox_of(command->connection->user), NOWHERE);
    say("* STATUS ");
    put_string(name.data, name.length);
    say(" (");
    struct command list = {.at = items.data + 1, .end = items.data + items.length - 1};
    const char *space = "";
    for (struct word item; items.length > 2 && next_word(&list, &item); space = " ") {
        uint32_t value = word_is(item, "MESSAGES") ? view_exists(&view) : word_is(item, "UIDNEXT") ? view.next : word_is(item, "UIDVALIDITY");
        say("%s%.*s %u", space, (int)item.length, item.data, value);
    }
    say(")\r\n");
    done(command, "Told.");
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
        if (word_is(key, "UID")) {
            found = next_word(command, &set), command->by_uid = true;
        } else if (word_is(key, "ALL") || word_is(key, "UNDELETED")) {
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
        struct view view = inbox_view(inbox, connection->told);
        uint32_t number = view_number(&view, taken->each[at]);
        if (inbox_remove(inbox, taken->each[at])) say("* %u EXPUNGE\r\n", number);
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

/* The number of UIDs that a set names, at most 65,536. */
static uint32_t set_size(struct word set) {
    uint64_t size = 0;
    for (char *at = set.data, *end = set.data + set.length; at < end && size < 65536; at++) {
        uint64_t first = strtoul(at, &at, 10), last = *at == ':' ? strtoul(at + 1, &at, 10) : first;
        size += last < first ? first - last + 1 : last - first + 1;
    }
    return size < 65536 ? (uint32_t)size : 65536;
}

static void expunge(struct command *command) {
    struct word set;
    if (command->by_uid && next_word(command, &set)) { /* without UIDs: nothing is ever marked as deleted */
        struct taken taken = {0};
        /* Other folders stay as they are: what was put there is gone at once. */
        for (uint32_t left = command->connection->in_inbox ? 0 : set_size(set); left-- > 0;) say("* 1 EXPUNGE\r\n");
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
    connection->sink->recipients_count = word_is(folder, "INBOX");
    if (waits) say("+ OK\r\n");
}

static void append_end(struct connection *connection) {
    struct sink *sink = connection->sink;
    uint32_t uid;
    counts[IMAP_APPEND]++;
    if (sink->recipients_count) {
        uid = inbox_add(connection->user, header_keep(sink->head, sink->kept));
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
    if (word_is(verb, "CAPABILITY")) {
        counts[IMAP_CAPABILITY]++;
        say("* CAPABILITY " CAPABILITIES "\r\n");
        done(command, "Told.");
    } else if (word_is(verb, "LOGOUT")) {
        counts[IMAP_LOGOUT]++;
        say("* BYE See you.\r\n");
        done(command, "Gone.");
        connection->closing = 1;
    } else if (word_is(verb, "ID") || word_is(verb, "ENABLE")) {
        counts[IMAP_OTHER]++;
        say(word_is(verb, "ID") ? "* ID (\"name\" \"null\")\r\n" : "* ENABLED\r\n");
        done(command, "Told.");
    } else if (word_is(verb, "LOGIN")) {
        counts[IMAP_LOGIN]++;
        if (next_word(command, &word)) log_on(command, word); else refuse(command, "BAD", "Who?");
    } else if (word_is(verb, "AUTHENTICATE")) {
        counts[IMAP_AUTHENTICATE]++;
        if (!next_word(command, &word) || !word_is(word, "PLAIN")) {
            refuse(command, "NO", "PLAIN only.");
        } else if (next_word(command, &word)) {
            log_on(command, plain_name(word));
        } else {
            snprintf(connection->tag, sizeof connection->tag, "%.*s", (int)command->tag.length, command->tag.data);
            connection->state = AUTHENTICATING;
            say("+ \r\n");
        }
    } else if (word_is(verb, "NOOP")) {
        counts[IMAP_NOOP]++;
        imap_tell_news(connection);
        done(command, "Nothing.");
    } else if (!connection->authenticated) {
        counts[IMAP_OTHER]++;
        refuse(command, "NO", "Log on first.");
    } else if (word_is(verb, "LIST") || word_is(verb, "LSUB")) {
        counts[IMAP_LIST]++;
        list(command, word_is(verb, "LIST") ? "LIST" : "LSUB");
    } else if (word_is(verb, "SELECT") || word_is(verb, "EXAMINE")) {
        counts[IMAP_SELECT]++;
        select_folder(command, word_is(verb, "EXAMINE"));
    } else if (word_is(verb, "STATUS")) {
        counts[IMAP_STATUS]++;
        status(command);
    } else if (word_is(verb, "NAMESPACE")) {
        counts[IMAP_OTHER]++;
        say("* NAMESPACE ((\"\" \"/\")) NIL NIL\r\n");
        done(command, "Told.");
    } else if (word_is(verb, "CREATE") || word_is(verb, "DELETE") || word_is(verb, "RENAME") || word_is(verb, "SUBSCRIBE") || word_is(verb, "UNSUBSCRIBE")) {
        counts[IMAP_OTHER]++;
        done(command, "As you say.");
    } else if (!connection->folder) {
        counts[IMAP_OTHER]++;
        refuse(command, "BAD", "No such command here.");
    } else if (word_is(verb, "IDLE")) {
        counts[IMAP_IDLE]++;
        snprintf(connection->tag, sizeof connection->tag, "%.*s", (int)command->tag.length, command->tag.data);
        connection->state = IDLING;
        idling_begin(connection);
        say("+ idling\r\n");
        imap_tell_news(connection);
    } else if (word_is(verb, "CLOSE") || word_is(verb, "UNSELECT") || word_is(verb, "CHECK")) {
        counts[IMAP_CLOSE]++;
        if (!word_is(verb, "CHECK")) leave(connection);
        done(command, "Closed.");
    } else {
        inbox = connection->in_inbox ? inbox_of(connection->user) : NULL;
        imap_tell_news(connection);
        if (word_is(verb, "FETCH")) {
            counts[IMAP_FETCH]++;
            if (inbox) inbox_lock(inbox);
            fetch(command);
            if (inbox) inbox_unlock(inbox);
        } else if (word_is(verb, "STORE")) {
            counts[IMAP_STORE]++;
            store(command);
        } else if (word_is(verb, "SEARCH")) {
            counts[IMAP_SEARCH]++;
            search(command);
        } else if (word_is(verb, "COPY") || word_is(verb, "MOVE")) {
            counts[word_is(verb, "COPY") ? IMAP_COPY : IMAP_MOVE]++;
            transfer(command, word_is(verb, "MOVE"));
        } else if (word_is(verb, "EXPUNGE")) {
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
        if (word_is(line, "DONE")) done(&command, "Idled."); else refuse(&command, "BAD", "DONE?");
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
            if (word_is(verb, "UID")) command.by_uid = next_word(&command, &verb);
            run(&command, verb);
            return line;
        }
        if (next_word(&command, &command.tag) && next_word(&command, &verb) && word_is(verb, "APPEND")) {
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

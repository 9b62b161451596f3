/* The null server's FETCH: what a client asks of a message, made of a kept or canned header and the canned body. */

#define _GNU_SOURCE
#include "imap.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static void put_address_list(const struct message *message, const char *field) {
    char value[HEADER_BYTES];
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
    char value[HEADER_BYTES];
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
    if (word_is(section, "HEADER")) {
        second_length = 0;
    } else if (word_is(section, "TEXT") || word_is(section, "1")) {
        first_length = 0;
    } else if (word_is(section, "MIME") || word_is(section, "1.MIME")) {
        first = canned_mime, first_length = strlen(canned_mime), second_length = 0;
    } else if (word_starts(section, "HEADER.FIELDS")) {
        char *open = memchr(section.data, '(', section.length);
        struct word names = {open, open ? section.length - (size_t)(open - section.data) : 0};
        second_length = 0;
        first_length = names.length < 2 ? 0 : chosen_fields(message, names, word_starts(section, "HEADER.FIELDS.NOT"), chosen);
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
    if (word_is(item, "UID")) {
        say("UID %u", uid);
    } else if (word_is(item, "FLAGS")) {
        say("FLAGS ()");
    } else if (word_is(item, "INTERNALDATE")) {
        say("INTERNALDATE \"01-Nov-2025 00:00:00 +0000\"");
    } else if (word_is(item, "RFC822.SIZE")) {
        say("RFC822.SIZE %zu", message->header_length + options.body_bytes);
    } else if (word_is(item, "ENVELOPE")) {
        say("ENVELOPE ");
        put_envelope(message);
    } else if (word_is(item, "BODY") || word_is(item, "BODYSTRUCTURE")) {
        put_structure(item.length > 4);
    } else if (word_starts(item, "BODY[") || word_starts(item, "BODY.PEEK[")) {
        char *open = memchr(item.data, '[', item.length), *close = memrchr(item.data, ']', item.length);
        struct word section = {open + 1, close ? (size_t)(close - open - 1) : 0};
        struct word partial = {close ? close + 1 : NULL, close ? (size_t)(item.data + item.length - close - 1) : 0};
        put_section(message, section, partial);
    } else if (word_is(item, "RFC822")) {
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
        if (word_is(item, "UID")) with_uid = true;
        put_item(item, &message, uid);
    }
    if (command->by_uid && !with_uid) say("%sUID %u", any ? " " : "", uid);
    say(")\r\n");
}

void fetch(struct command *command) {
    static char fast[] = "(FLAGS INTERNALDATE RFC822.SIZE)", all[] = "(FLAGS INTERNALDATE RFC822.SIZE ENVELOPE)",
                full[] = "(FLAGS INTERNALDATE RFC822.SIZE ENVELOPE BODY)";
    struct word set, items;
    if (!next_word(command, &set) || !next_word(command, &items)) {
        refuse(command, "BAD", "What?");
        return;
    }
    if (word_is(items, "FAST")) items = (struct word){fast, sizeof fast - 1};
    if (word_is(items, "ALL")) items = (struct word){all, sizeof all - 1};
    if (word_is(items, "FULL")) items = (struct word){full, sizeof full - 1};
    visit(command, set, fetch_one, &items);
    done(command, "Fetched.");
}

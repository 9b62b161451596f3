/* The null server's SMTP (RFC 5321, with PIPELINING, 8BITMIME, SIZE and AUTH PLAIN): every message is accepted.
 *
 * Of a message the beginning is kept, for its header; it then lies in the Inbox of every recipient, lists expanded.
 */

#define _GNU_SOURCE
#include "null.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

void smtp_greet(void) {
    say("220 null.test ESMTP\r\n");
}

static bool is(const char *line, size_t length, const char *verb) {
    size_t verb_length = strlen(verb);
    return length >= verb_length && !strncasecmp(line, verb, verb_length) &&
           (length == verb_length || line[verb_length] == ' ' || line[verb_length] == ':');
}

static void add_recipient(struct sink *sink, uint32_t user) {
    for (uint32_t at = 0; at < sink->recipients_count; at++)
        if (sink->recipients[at] == user) return;
    if (sink->recipients_count == sink->recipients_room) {
        sink->recipients_room = sink->recipients_room ? 2 * sink->recipients_room : 8;
        sink->recipients = realloc(sink->recipients, sink->recipients_room * sizeof *sink->recipients);
        if (!sink->recipients) abort();
    }
    sink->recipients[sink->recipients_count++] = user;
}

static void recipient(struct connection *connection, const char *line, size_t length) {
    const char *open = memchr(line, '<', length), *close = memchr(line, '>', length);
    if (!connection->sink || !open || !close || close < open) {
        say("503 5.5.1 Not now.\r\n");
        return;
    }
    size_t size = (size_t)(close - open) - 1;
    const struct list *list = list_of(open + 1, size);
    for (size_t at = 0; list && at < list->count; at++) add_recipient(connection->sink, list->users[at]);
    if (!list) add_recipient(connection->sink, user_of(open + 1, size));
    say("250 2.1.5 Ok\r\n");
}

static void deliver(struct connection *connection) {
    struct sink *sink = connection->sink;
    uint32_t header = header_keep(sink->head, sink->kept);
    for (uint32_t at = 0; at < sink->recipients_count; at++) inbox_add(sink->recipients[at], header);
    counts[DELIVERED] += sink->recipients_count;
    counts[SMTP_DATA]++;
    sink_close(connection);
    connection->state = COMMAND;
    say("250 2.0.0 Ok: as good as delivered\r\n");
}

/* Look for the end of a message, which may be spread over pieces; the bytes that belong to it. */
static size_t take_data(struct connection *connection, const char *data, size_t length) {
    static const char end[] = "\r\n.\r\n";
    struct sink *sink = connection->sink;
    char seam[8];
    size_t overlap = length < 4 ? length : 4;
    memcpy(seam, sink->carry, 4);
    memcpy(seam + 4, data, overlap);
    const char *found = memmem(seam, 4 + overlap, end, 5);
    size_t taken = length;
    if (found) {
        taken = (size_t)(found - seam) + 5 - 4;
    } else if ((found = memmem(data, length, end, 5))) {
        taken = (size_t)(found - data) + 5;
    }
    sink_keep(sink, data, taken);
    if (found) {
        deliver(connection);
    } else {
        memmove(sink->carry, seam + overlap, 4);
        if (length >= 4) memcpy(sink->carry, data + length - 4, 4);
    }
    return taken;
}

static void run(struct connection *connection, const char *line, size_t length) {
    if (connection->state == AUTHENTICATING) {
        connection->state = COMMAND;
        say("235 2.7.0 Welcome\r\n");
    } else if (is(line, length, "EHLO")) {
        counts[SMTP_EHLO]++;
        say("250-null.test\r\n250-PIPELINING\r\n250-SIZE 104857600\r\n250-AUTH PLAIN\r\n250-ENHANCEDSTATUSCODES\r\n"
            "250 8BITMIME\r\n");
    } else if (is(line, length, "HELO")) {
        counts[SMTP_EHLO]++;
        say("250 null.test\r\n");
    } else if (is(line, length, "AUTH")) {
        counts[SMTP_AUTH]++;
        if (length > strlen("AUTH PLAIN ")) {
            say("235 2.7.0 Welcome\r\n");
        } else {
            connection->state = AUTHENTICATING;
            say("334 \r\n");
        }
    } else if (is(line, length, "MAIL")) {
        counts[SMTP_MAIL]++;
        sink_close(connection);
        sink_open(connection);
        say("250 2.1.0 Ok\r\n");
    } else if (is(line, length, "RCPT")) {
        counts[SMTP_RCPT]++;
        recipient(connection, line, length);
    } else if (is(line, length, "DATA")) {
        if (!connection->sink || !connection->sink->recipients_count) {
            say("503 5.5.1 For whom?\r\n");
            return;
        }
        connection->state = DATA;
        memcpy(connection->sink->carry, "\0\0\r\n", 4);
        say("354 Go on\r\n");
    } else if (is(line, length, "RSET")) {
        counts[SMTP_RSET]++;
        sink_close(connection);
        say("250 2.0.0 Ok\r\n");
    } else if (is(line, length, "QUIT")) {
        counts[SMTP_QUIT]++;
        say("221 2.0.0 Bye\r\n");
        connection->closing = 1;
    } else {
        counts[SMTP_OTHER]++;
        say(is(line, length, "NOOP") ? "250 2.0.0 Ok\r\n" : "502 5.5.2 No such command\r\n");
    }
}

size_t smtp_take(struct connection *connection, char *data, size_t length) {
    size_t at = 0;
    while (at < length && !connection->closing) {
        if (connection->state == DATA) {
            at += take_data(connection, data + at, length - at);
            continue;
        }
        char *end = memchr(data + at, '\n', length - at);
        if (!end) break;
        size_t line = (size_t)(end - (data + at));
        run(connection, data + at, line && end[-1] == '\r' ? line - 1 : line);
        at += line + 1;
    }
    return connection->closing ? length : at;
}

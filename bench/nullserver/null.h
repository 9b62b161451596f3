/* What the parts of the null server share: a mail server that answers at once, from memory, and measures nobody. */

#ifndef NULL_H
#define NULL_H

#include <stdbool.h>
#include <stdint.h>
#include <stddef.h>

#define HEAD_BYTES 4096    /* of a message that comes in, what is kept while it does */
#define HEADER_BYTES 1024  /* of its header block, what is kept for good */
#define NEWEST 256         /* messages of an Inbox that have the header with which they came */
#define MOST_REMOVED 4088  /* messages missing in the middle of an Inbox; what goes beyond it stays */
#define LONGEST_COMMAND (1u << 20)
#define NOWHERE UINT32_MAX

struct options {
    uint32_t workers, users, messages, folders, folder_messages, body_bytes, headers, scan_ms;
    double pushes_per_s; /* to each idling connection */
    bool stamped;        /* pushes say when they were sent */
    const char *lists;
};
extern struct options options;

/* --- bytes (main.c) --- */

struct bytes {
    char *data;
    size_t length, room;
};
void put(const void *data, size_t length); /* to the connection whose input is being looked at */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
uint64_t now_ns(void);

/* --- users and messages (mailbox.c) --- */

/* A user's Inbox: the UIDs from base to next - 1 without the removed ones, which are in order. */
struct inbox {
    uint32_t lock, base, next, removed_count;
    uint32_t copied; /* UIDs given out in all other folders together */
    uint32_t spare[3];
    uint32_t removed[MOST_REMOVED];
    uint32_t headers[NEWEST]; /* of the newest messages, by UID modulo NEWEST: which header was kept, 0 for none */
};

/* A folder as a command sees it. */
struct view {
    uint32_t base, next, removed_count;
    const uint32_t *removed;
};

void mailbox_prepare(void);              /* before the workers are forked: what they share */
uint32_t user_of(const char *name, size_t length); /* by the number at the end of the part before any "@" */
struct inbox *inbox_of(uint32_t user);
void inbox_lock(struct inbox *inbox);
void inbox_unlock(struct inbox *inbox);
uint32_t inbox_next(const struct inbox *inbox); /* the next UID */
struct view inbox_view(const struct inbox *inbox, uint32_t next); /* as whoever was told of the UIDs below `next` sees it */
uint32_t view_exists(const struct view *view);
uint32_t view_uid(const struct view *view, uint32_t number);
bool view_removed(const struct view *view, uint32_t uid);
uint32_t view_number(const struct view *view, uint32_t uid);
bool inbox_remove(struct inbox *inbox, uint32_t uid);
uint32_t inbox_add(uint32_t user, uint32_t header); /* the new UID */
uint32_t header_keep(const char *head, size_t length); /* once for all recipients; what `inbox_add` wants */

struct message {
    char header[HEADER_BYTES + 512]; /* ends with the empty line */
    size_t header_length;
};
void message_read(struct message *message, uint32_t user, bool in_inbox, const char *folder, uint32_t uid);
size_t header_field(const char *header, size_t length, const char *name, char *value, size_t room);
extern char *canned_body;
extern const char canned_mime[];

struct list {
    char *address;
    uint32_t *users;
    size_t count;
};
const struct list *list_of(const char *address, size_t length);

/* --- connections --- */

/* A message that is coming in: the beginning of it is kept, the rest is counted. */
struct sink {
    uint64_t left;     /* bytes of an APPEND's literal */
    char carry[4];     /* the end of what came of DATA, where its end may have begun */
    size_t kept;
    uint32_t recipients_count, recipients_room;
    uint32_t *recipients;
    char head[HEAD_BYTES];
};

enum state { COMMAND, AUTHENTICATING, IDLING, APPENDING, APPENDED, DATA };

struct connection {
    int fd;
    uint8_t imap, state, writing, closing;
    uint8_t in_inbox;        /* the open folder is the Inbox */
    uint8_t authenticated;
    uint32_t user, told;     /* the first UID of the Inbox that the client has not been told of */
    uint32_t folder_messages;
    uint32_t idling_at;      /* place in the worker's list */
    uint32_t continued;      /* bytes of the command for which "+" was said */
    char tag[20];
    char *folder;            /* its name; NULL when none is open */
    struct bytes in, out;
    struct sink *sink;
};

/* Each takes what it can of the input and returns how many bytes that was. */
size_t imap_take(struct connection *connection, char *data, size_t length);
size_t smtp_take(struct connection *connection, char *data, size_t length);
void imap_greet(void);
void smtp_greet(void);
void imap_tell_news(struct connection *connection);
void idling_begin(struct connection *connection);
void idling_end(struct connection *connection);
void sink_open(struct connection *connection);
void sink_close(struct connection *connection);
void sink_keep(struct sink *sink, const char *data, size_t length);

/* --- counts (main.c) --- */

enum counter {
    IMAP_CAPABILITY, IMAP_NOOP, IMAP_LOGOUT, IMAP_LOGIN, IMAP_AUTHENTICATE, IMAP_LIST, IMAP_SELECT, IMAP_STATUS,
    IMAP_APPEND, IMAP_FETCH, IMAP_STORE, IMAP_COPY, IMAP_MOVE, IMAP_SEARCH, IMAP_EXPUNGE, IMAP_IDLE, IMAP_CLOSE,
    IMAP_OTHER, SMTP_EHLO, SMTP_AUTH, SMTP_MAIL, SMTP_RCPT, SMTP_DATA, SMTP_RSET, SMTP_QUIT, SMTP_OTHER,
    CONNECTIONS, DELIVERED, PUSHED, COUNTERS
};
extern uint64_t *counts; /* this worker's */

#endif

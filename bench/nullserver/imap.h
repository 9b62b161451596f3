/* What the parts of the null server's IMAP share: a command, its words, and the messages that it names. */

#ifndef IMAP_H
#define IMAP_H

#include "null.h"

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

typedef void visitor(struct command *, uint32_t number, uint32_t uid, void *about);

bool word_is(struct word word, const char *name);
bool word_starts(struct word word, const char *name);
bool next_word(struct command *command, struct word *word);
void done(struct command *command, const char *text);
void refuse(struct command *command, const char *status, const char *text);
void put_string(const char *text, size_t length);
void visit(struct command *command, struct word set, visitor *look, void *about);
void fetch(struct command *command); /* fetch.c */

#endif

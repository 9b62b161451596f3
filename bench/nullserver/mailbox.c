/* The null server's mail: Inboxes that count what comes and goes, headers of the newest, canned everything else.
 *
 * All of it lies in memory that the workers share, reserved for all users and touched only for those who come.
 */

#define _GNU_SOURCE
#include "null.h"

#include <ctype.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>

char *canned_body;
const char canned_mime[] =
    "MIME-Version: 1.0\r\nContent-Type: text/plain; charset=us-ascii\r\nContent-Transfer-Encoding: 7bit\r\n";

/* What is kept of a header, until as many others have come as there is room for. */
struct kept {
    uint32_t number, length; /* 0 while it is being written */
    char header[HEADER_BYTES - 8];
};

static struct inbox *inboxes;
static struct kept *headers;
static uint32_t *last_header; /* the number of the newest */
static struct list *lists;
static size_t lists_count;

static void *shared(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        perror("memory");
        exit(1);
    }
    return memory;
}

static void *enough(void *memory) {
    if (!memory) {
        perror("memory");
        exit(1);
    }
    return memory;
}

/* --- distribution lists: a table as Postfix has it, an address, then addresses with commas, lines continued --- */

static int by_address(const void *left, const void *right) {
    return strcasecmp(((const struct list *)left)->address, ((const struct list *)right)->address);
}

static void lists_read(const char *path) {
    FILE *file = fopen(path, "r");
    if (!file) {
        perror(path);
        exit(1);
    }
    char *line = NULL;
    size_t line_room = 0, room = 0;
    while (getline(&line, &line_room, file) > 0) {
        char *rest = line, *word;
        bool continued = *line == ' ' || *line == '\t';
        while ((word = strsep(&rest, " \t,\r\n"))) {
            if (!*word) continue;
            if (!continued) {
                if (lists_count == room) lists = enough(realloc(lists, (room = room ? 2 * room : 256) * sizeof *lists));
                lists[lists_count++] = (struct list){.address = enough(strdup(word))};
                continued = true;
            } else if (lists_count) {
                struct list *list = &lists[lists_count - 1];
                list->users = enough(realloc(list->users, (list->count + 1) * sizeof *list->users));
                list->users[list->count++] = user_of(word, strlen(word));
            }
        }
    }
    free(line);
    fclose(file);
    qsort(lists, lists_count, sizeof *lists, by_address);
}

const struct list *list_of(const char *address, size_t length) {
    char name[256];
    if (!lists_count || length >= sizeof name) return NULL;
    memcpy(name, address, length);
    name[length] = 0;
    struct list wanted = {.address = name};
    return bsearch(&wanted, lists, lists_count, sizeof *lists, by_address);
}

void mailbox_prepare(void) {
    inboxes = shared(options.users * sizeof *inboxes);
    headers = shared((size_t)options.headers * sizeof *headers);
    last_header = shared(sizeof *last_header);
    canned_body = enough(malloc(options.body_bytes + 1));
    for (uint32_t at = 0; at < options.body_bytes; at++) {
        uint32_t column = at % 74;
        canned_body[at] = column == 72 ? '\r' : column == 73 ? '\n' : (char)('a' + at / 74 % 26);
    }
    if (options.body_bytes > 1) memcpy(canned_body + options.body_bytes - 2, "\r\n", 2);
    if (options.lists) lists_read(options.lists);
}

/* --- Inboxes --- */

uint32_t user_of(const char *name, size_t length) {
    const char *at = memchr(name, '@', length);
    if (at) length = (size_t)(at - name);
    uint64_t number = 0, unit = 1;
    while (length && name[length - 1] >= '0' && name[length - 1] <= '9' && unit <= 1000000000) {
        number += (uint64_t)(name[--length] - '0') * unit;
        unit *= 10;
    }
    return (uint32_t)(number % options.users);
}

struct inbox *inbox_of(uint32_t user) {
    struct inbox *inbox = &inboxes[user];
    if (!inbox->base) { /* nobody has looked yet */
        inbox_lock(inbox);
        if (!inbox->base) {
            inbox->next = options.messages + 1;
            inbox->copied = 1000000;
            __atomic_store_n(&inbox->base, 1, __ATOMIC_RELEASE);
        }
        inbox_unlock(inbox);
    }
    return inbox;
}

void inbox_lock(struct inbox *inbox) {
    while (__atomic_exchange_n(&inbox->lock, 1, __ATOMIC_ACQUIRE)) sched_yield(); /* who holds it may wait for this CPU */
}

void inbox_unlock(struct inbox *inbox) {
    __atomic_store_n(&inbox->lock, 0, __ATOMIC_RELEASE);
}

uint32_t inbox_next(const struct inbox *inbox) {
    return __atomic_load_n(&inbox->next, __ATOMIC_ACQUIRE);
}

struct view inbox_view(const struct inbox *inbox, uint32_t next) {
    uint32_t last = inbox_next(inbox);
    return (struct view){inbox->base, next < last ? next : last, inbox->removed_count, inbox->removed};
}

uint32_t view_exists(const struct view *view) {
    return view->next - view->base - view->removed_count;
}

/* How many were removed below this UID. */
static uint32_t removed_below(const struct view *view, uint32_t uid) {
    uint32_t low = 0, high = view->removed_count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (view->removed[middle] < uid) low = middle + 1; else high = middle;
    }
    return low;
}

bool view_removed(const struct view *view, uint32_t uid) {
    uint32_t at = removed_below(view, uid);
    return at < view->removed_count && view->removed[at] == uid;
}

uint32_t view_uid(const struct view *view, uint32_t number) {
    uint32_t uid = view->base + number - 1;
    for (uint32_t at = 0; at < view->removed_count && view->removed[at] <= uid; at++) uid++;
    return uid;
}

uint32_t view_number(const struct view *view, uint32_t uid) {
    return uid - view->base + 1 - removed_below(view, uid);
}

/* Whether it was there and is gone now. The caller holds the lock. */
bool inbox_remove(struct inbox *inbox, uint32_t uid) {
    struct view view = inbox_view(inbox, NOWHERE);
    if (uid < inbox->base || uid >= inbox->next || view_removed(&view, uid)) return false;
    if (uid == inbox->base) {
        uint32_t gone = 0;
        inbox->base++;
        while (gone < inbox->removed_count && inbox->removed[gone] == inbox->base) inbox->base++, gone++;
        inbox->removed_count -= gone;
        memmove(inbox->removed, inbox->removed + gone, inbox->removed_count * sizeof *inbox->removed);
        return true;
    }
    if (inbox->removed_count == MOST_REMOVED) return false;
    uint32_t at = removed_below(&view, uid);
    memmove(inbox->removed + at + 1, inbox->removed + at, (inbox->removed_count++ - at) * sizeof *inbox->removed);
    inbox->removed[at] = uid;
    return true;
}

/* --- headers --- */

/* The next field of a header block, folded lines and line end included; its length, 0 at the end. */
static size_t field_length(const char *header, size_t length) {
    size_t at = 0;
    while (at < length) {
        const char *end = memchr(header + at, '\n', length - at);
        if (!end) return 0;
        at = (size_t)(end - header) + 1;
        if (at < length && header[at] != ' ' && header[at] != '\t') return at;
    }
    return at;
}

static bool is_named(const char *field, size_t length, const char *name) {
    size_t name_length = strlen(name);
    return length > name_length && field[name_length] == ':' && !strncasecmp(field, name, name_length);
}

/* The value of a field on one line, ended by 0, cut to fit; its length, 0 where there is none. */
size_t header_field(const char *header, size_t length, const char *name, char *value, size_t room) {
    size_t used = 0;
    for (size_t at = 0, field; (field = field_length(header + at, length - at)); at += field) {
        if (!is_named(header + at, field, name)) continue;
        for (size_t from = at + strlen(name) + 1; from < at + field && used + 1 < room; from++) {
            char byte = header[from];
            if (byte == '\r' || byte == '\n' || (!used && byte == ' ')) continue;
            value[used++] = byte == '\t' ? ' ' : byte;
        }
        break;
    }
    value[used] = 0;
    return used;
}

/* Of a header, the fields that somebody will ask for, as far as they fit; its number, which is never 0. */
uint32_t header_keep(const char *head, size_t length) {
    static const char *const wanted[] = {"X-LoadSim", "Message-ID", "Date", "From", "Subject", "To", NULL};
    uint32_t number;
    do number = __atomic_add_fetch(last_header, 1, __ATOMIC_RELAXED); while (!number);
    struct kept *kept = &headers[number % options.headers];
    __atomic_store_n(&kept->number, 0, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    uint32_t used = 0;
    for (const char *const *name = wanted; *name; name++) {
        for (size_t at = 0, field; (field = field_length(head + at, length - at)); at += field) {
            if (field <= 2) break; /* the empty line */
            if (!is_named(head + at, field, *name)) continue;
            if (used + field <= sizeof kept->header) {
                memcpy(kept->header + used, head + at, field);
                used += (uint32_t)field;
            }
            break;
        }
    }
    /* Of each body, a text is kept: so says the evidence, without a digest. */
    char *digest = memmem(kept->header, used, " body=", 6);
    for (char *rest = digest ? digest + 6 : NULL; rest && rest < kept->header + used && isxdigit((unsigned char)*rest); rest++) *rest = ' ';
    char *kind = memmem(kept->header, used, " kind=ups", 9);
    for (char *rest = kind ? kind + 9 : NULL; rest && rest < kept->header + used && *rest != ';'; rest++) {
        *rest = rest < kind + 11 ? "1K"[rest - kind - 9] : ' ';
    }
    kept->length = used;
    __atomic_store_n(&kept->number, number, __ATOMIC_RELEASE);
    return number;
}

/* Copy a header that was kept; its length, 0 when others have taken its place, before or meanwhile. */
static size_t header_kept(uint32_t number, char *to) {
    const struct kept *kept = &headers[number % options.headers];
    if (!number || __atomic_load_n(&kept->number, __ATOMIC_ACQUIRE) != number) return 0;
    size_t length = kept->length <= sizeof kept->header ? kept->length : 0;
    memcpy(to, kept->header, length);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return __atomic_load_n(&kept->number, __ATOMIC_RELAXED) == number ? length : 0;
}

/* A message has come; whoever sees its UID sees its header, too. */
uint32_t inbox_add(uint32_t user, uint32_t header) {
    struct inbox *inbox = inbox_of(user);
    inbox_lock(inbox);
    uint32_t uid = inbox->next;
    inbox->headers[uid % NEWEST] = header;
    __atomic_store_n(&inbox->next, uid + 1, __ATOMIC_RELEASE);
    inbox_unlock(inbox);
    return uid;
}

/* The header of any message; the caller holds the lock of the user's Inbox. */
void message_read(struct message *message, uint32_t user, bool in_inbox, const char *folder, uint32_t uid) {
    const struct inbox *inbox = inbox_of(user);
    size_t used = 0;
    if (in_inbox && uid < inbox->next && uid + NEWEST >= inbox->next) used = header_kept(inbox->headers[uid % NEWEST], message->header);
    if (!used) {
        uint32_t place = 0; /* tells folders apart in ids */
        for (const char *at = folder; *at; at++) place = place * 31 + (unsigned char)*at;
        used = (size_t)snprintf(message->header, HEADER_BYTES,
            "X-LoadSim: run=initial; from=1; id=i%u.%x.%u; kind=ups1K; sent=1761955200000000; body=\r\n"
            "Message-ID: <i%u.%x.%u.initial@null.test>\r\nDate: Sat, 01 Nov 2025 00:00:00 +0000\r\nFrom: user1@null.test\r\n"
            "Subject: Message %u of a server that has no mail\r\nTo: user%u@null.test\r\n",
            user, place, uid, user, place, uid, uid, user);
    }
    used += (size_t)snprintf(message->header + used, sizeof message->header - used, "%s\r\n", canned_mime);
    message->header_length = used;
}

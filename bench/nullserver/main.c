/* The null server's process: options, listening sockets, workers, and one epoll loop in each of them.
 *
 * A connection costs its socket and some 150 bytes: input and output are held only as long as they are incomplete.
 */

#define _GNU_SOURCE
#include "null.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MOST_WORKERS 64
#define BACKLOG 65535
#define PUSH_TICK_MS 5
#define EVENTS 512

struct options options = {
    .workers = 1, .users = 100000, .messages = 100, .folders = 40, .folder_messages = 5,
    .body_bytes = 1024, .headers = 1 << 17, .scan_ms = 100,
};
uint64_t *counts;

static const char *const names[COUNTERS] = {
    "IMAP CAPABILITY", "IMAP NOOP", "IMAP LOGOUT", "IMAP LOGIN", "IMAP AUTHENTICATE", "IMAP LIST", "IMAP SELECT",
    "IMAP STATUS", "IMAP APPEND", "IMAP FETCH", "IMAP STORE", "IMAP COPY", "IMAP MOVE", "IMAP SEARCH", "IMAP EXPUNGE",
    "IMAP IDLE", "IMAP CLOSE", "IMAP OTHER", "SMTP EHLO", "SMTP AUTH", "SMTP MAIL", "SMTP RCPT", "SMTP DATA",
    "SMTP RSET", "SMTP QUIT", "SMTP OTHER", "connections", "delivered", "pushed",
};

static int epoll;
static struct bytes out;             /* the answer that is being made */
static char input[1 << 18];
static struct connection **idling;
static uint32_t idling_count, idling_room, next_push;
static struct connection listeners[2]; /* SMTP, IMAP */

static void die(const char *what) {
    perror(what);
    exit(1);
}

uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* --- bytes --- */

static void make_room(struct bytes *bytes, size_t more) {
    size_t room = bytes->room ? bytes->room : 512;
    while (room < bytes->length + more) room *= 2;
    if (room != bytes->room) {
        bytes->data = realloc(bytes->data, room);
        if (!bytes->data) die("memory");
        bytes->room = room;
    }
}

static void append(struct bytes *bytes, const void *data, size_t length) {
    make_room(bytes, length);
    memcpy(bytes->data + bytes->length, data, length);
    bytes->length += length;
}

static void drop(struct bytes *bytes, size_t length) {
    bytes->length -= length;
    if (bytes->length) {
        memmove(bytes->data, bytes->data + length, bytes->length);
    } else {
        free(bytes->data);
        *bytes = (struct bytes){0};
    }
}

void put(const void *data, size_t length) {
    append(&out, data, length);
}

void say(const char *format, ...) {
    va_list arguments;
    make_room(&out, 2048);
    va_start(arguments, format);
    int length = vsnprintf(out.data + out.length, 2048, format, arguments);
    va_end(arguments);
    out.length += length < 2048 ? (size_t)length : 2047;
}

/* --- what comes in --- */

void sink_open(struct connection *connection) {
    if (!connection->sink) connection->sink = calloc(1, sizeof(struct sink));
    if (!connection->sink) die("memory");
    connection->sink->kept = 0;
}

void sink_close(struct connection *connection) {
    if (connection->sink) free(connection->sink->recipients);
    free(connection->sink);
    connection->sink = NULL;
}

void sink_keep(struct sink *sink, const char *data, size_t length) {
    size_t room = HEAD_BYTES - sink->kept;
    if (length > room) length = room;
    memcpy(sink->head + sink->kept, data, length);
    sink->kept += length;
}

/* --- connections --- */

void idling_begin(struct connection *connection) {
    if (idling_count == idling_room) {
        idling_room = idling_room ? 2 * idling_room : 1024;
        idling = realloc(idling, idling_room * sizeof *idling);
        if (!idling) die("memory");
    }
    connection->idling_at = idling_count;
    idling[idling_count++] = connection;
}

void idling_end(struct connection *connection) {
    if (connection->idling_at == NOWHERE) return;
    struct connection *last = idling[--idling_count];
    idling[connection->idling_at] = last;
    last->idling_at = connection->idling_at;
    connection->idling_at = NOWHERE;
}

static void end(struct connection *connection) {
    idling_end(connection);
    close(connection->fd);
    sink_close(connection);
    free(connection->folder);
    free(connection->in.data);
    free(connection->out.data);
    free(connection);
}

/* Send the answer that was made; false when the connection is over. */
static bool flush(struct connection *connection) {
    if (connection->out.length) {
        append(&connection->out, out.data, out.length);
    } else if (out.length) {
        ssize_t sent = send(connection->fd, out.data, out.length, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN) return false;
        if (sent < 0) sent = 0;
        if ((size_t)sent < out.length) append(&connection->out, out.data + sent, out.length - (size_t)sent);
    }
    out.length = 0;
    if (out.room > 1 << 20) {
        free(out.data);
        out = (struct bytes){0};
    }
    bool writing = connection->out.length > 0;
    if (writing != connection->writing) {
        struct epoll_event event = {.events = EPOLLIN | (writing ? EPOLLOUT : 0), .data.ptr = connection};
        epoll_ctl(epoll, EPOLL_CTL_MOD, connection->fd, &event);
        connection->writing = writing;
    }
    return writing || !connection->closing;
}

static bool readable(struct connection *connection) {
    ssize_t got = recv(connection->fd, input, sizeof input, 0);
    if (got == 0 || (got < 0 && errno != EAGAIN)) return false;
    if (got < 0) return true;
    size_t (*take)(struct connection *, char *, size_t) = connection->imap ? imap_take : smtp_take;
    if (connection->in.length) {
        append(&connection->in, input, (size_t)got);
        drop(&connection->in, take(connection, connection->in.data, connection->in.length));
    } else {
        size_t taken = take(connection, input, (size_t)got);
        if (taken < (size_t)got) append(&connection->in, input + taken, (size_t)got - taken);
    }
    if (connection->in.length > LONGEST_COMMAND) return false;
    return flush(connection);
}

static bool writable(struct connection *connection) {
    ssize_t sent = send(connection->fd, connection->out.data, connection->out.length, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN) return false;
    if (sent > 0) drop(&connection->out, (size_t)sent);
    return flush(connection);
}

static void welcome(const struct connection *listener) {
    int fd, one = 1;
    while ((fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        struct connection *connection = calloc(1, sizeof *connection);
        if (!connection) die("memory");
        connection->fd = fd;
        connection->imap = listener->imap;
        connection->idling_at = NOWHERE;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event)) die("epoll");
        counts[CONNECTIONS]++;
        if (connection->imap) imap_greet(); else smtp_greet();
        if (!flush(connection)) end(connection);
    }
    if (errno != EAGAIN && errno != ECONNABORTED && errno != EINTR) die("accept");
}

/* --- news for those who wait --- */

static void tell(struct connection *connection) {
    imap_tell_news(connection);
    if (out.length && !flush(connection)) end(connection);
}

static void scan(void) {
    for (uint32_t at = idling_count; at-- > 0;) tell(idling[at]); /* from the end: one that ends is replaced by the last */
}

static void push(uint32_t many) {
    for (; many && idling_count; many--) {
        struct connection *connection = idling[next_push++ % idling_count];
        if (!connection->in_inbox) continue;
        inbox_add(connection->user, 0);
        counts[PUSHED]++;
        tell(connection);
    }
}

/* --- workers --- */

static void work(const int sockets[2]) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    for (int imap = 0; imap < 2; imap++) {
        listeners[imap] = (struct connection){.fd = sockets[imap], .imap = (uint8_t)imap};
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &listeners[imap]};
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, sockets[imap], &event)) die("epoll");
    }
    uint64_t pushed_ns = now_ns(), scanned_ns = pushed_ns;
    double due = 0;
    for (;;) {
        static struct epoll_event events[EVENTS];
        int tick_ms = options.pushes_per_s > 0 ? PUSH_TICK_MS : (int)options.scan_ms;
        int ready = epoll_wait(epoll, events, EVENTS, idling_count ? tick_ms : -1);
        if (ready < 0 && errno != EINTR) die("epoll");
        for (int at = 0; at < ready; at++) {
            struct connection *connection = events[at].data.ptr;
            if (connection == &listeners[0] || connection == &listeners[1]) {
                welcome(connection);
                continue;
            }
            bool alive = true;
            if (events[at].events & EPOLLOUT) alive = writable(connection);
            if (alive && events[at].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) alive = readable(connection);
            if (!alive) end(connection);
        }
        uint64_t now = now_ns();
        if (now - scanned_ns >= options.scan_ms * 1000000ull) {
            scanned_ns = now;
            scan();
        }
        if (options.pushes_per_s > 0 && now - pushed_ns >= PUSH_TICK_MS * 1000000ull) {
            due += (double)(now - pushed_ns) * 1e-9 * options.pushes_per_s * idling_count;
            if (due > idling_count) due = idling_count;
            pushed_ns = now;
            push((uint32_t)due);
            due -= (uint32_t)due;
        }
    }
}

/* A socket on all addresses of a device (lo: all of 127.0.0.0/8); where that is not allowed, on 127.0.0.1. */
static int listen_on(const char *device, uint16_t *port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(*port)};
    socklen_t length = sizeof address;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
    bool only_device = !setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, device, (socklen_t)strlen(device) + 1);
    address.sin_addr.s_addr = htonl(only_device ? INADDR_ANY : INADDR_LOOPBACK);
    if (bind(fd, (struct sockaddr *)&address, length) || listen(fd, BACKLOG)) die("listen");
    getsockname(fd, (struct sockaddr *)&address, &length);
    *port = ntohs(address.sin_port);
    return fd;
}

static void raise_open_files(void) {
    struct rlimit limit = {.rlim_cur = 1048576, .rlim_max = 1048576};
    if (setrlimit(RLIMIT_NOFILE, &limit)) {
        getrlimit(RLIMIT_NOFILE, &limit);
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static void report(const uint64_t *all) {
    printf("{");
    for (int counter = 0; counter < COUNTERS; counter++) {
        uint64_t sum = 0;
        for (uint32_t worker = 0; worker < options.workers; worker++) sum += all[worker * COUNTERS + (uint32_t)counter];
        printf("%s\"%s\": %llu", counter ? ", " : "", names[counter], (unsigned long long)sum);
    }
    printf("}\n");
}

static _Noreturn void usage(void) {
    fprintf(stderr, "usage: nullserver [-i imap port] [-s smtp port] [-w workers] [-u users] [-m messages in an Inbox]\n"
                    "  [-f folders] [-n messages in each] [-z body bytes] [-k headers kept of all] [-c scan ms]\n"
                    "  [-p pushes per second to an idling connection] [-t (pushes say when)] [-l table of lists]\n"
                    "  [-d network device, lo by itself]\n");
    exit(2);
}

int main(int argc, char **argv) {
    uint16_t imap_port = 0, smtp_port = 0;
    const char *device = "lo";
    for (int option; (option = getopt(argc, argv, "i:s:w:u:m:f:n:z:k:c:p:tl:d:")) != -1;) {
        uint32_t number = optarg ? (uint32_t)strtoul(optarg, NULL, 10) : 0;
        switch (option) {
        case 'i': imap_port = (uint16_t)number; break;
        case 's': smtp_port = (uint16_t)number; break;
        case 'w': options.workers = number; break;
        case 'u': options.users = number; break;
        case 'm': options.messages = number; break;
        case 'f': options.folders = number; break;
        case 'n': options.folder_messages = number; break;
        case 'z': options.body_bytes = number; break;
        case 'k': options.headers = number; break;
        case 'c': options.scan_ms = number; break;
        case 'p': options.pushes_per_s = strtod(optarg, NULL); break;
        case 't': options.stamped = true; break;
        case 'l': options.lists = optarg; break;
        case 'd': device = optarg; break;
        default: usage();
        }
    }
    if (!options.workers || options.workers > MOST_WORKERS || !options.users || !options.headers || !options.scan_ms) usage();
    raise_open_files();
    signal(SIGPIPE, SIG_IGN);
    mailbox_prepare();
    size_t room = options.workers * COUNTERS * sizeof(uint64_t);
    uint64_t *all = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) die("memory");

    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGCHLD);
    sigprocmask(SIG_BLOCK, &ends, NULL);
    pid_t workers[MOST_WORKERS];
    int sockets[MOST_WORKERS][2]; /* all of them before the first worker accepts: the kernel spreads over those there are */
    for (uint32_t worker = 0; worker < options.workers; worker++) {
        sockets[worker][0] = listen_on(device, &smtp_port);
        sockets[worker][1] = listen_on(device, &imap_port);
    }
    for (uint32_t worker = 0; worker < options.workers; worker++) {
        workers[worker] = fork();
        if (workers[worker] < 0) die("fork");
        if (!workers[worker]) {
            sigprocmask(SIG_UNBLOCK, &ends, NULL);
            for (uint32_t other = 0; other < options.workers; other++)
                if (other != worker) close(sockets[other][0]), close(sockets[other][1]);
            counts = all + worker * COUNTERS;
            work(sockets[worker]);
        }
    }
    for (uint32_t worker = 0; worker < options.workers; worker++) close(sockets[worker][0]), close(sockets[worker][1]);
    printf("{\"imap\": %u, \"smtp\": %u}\n", imap_port, smtp_port);
    fflush(stdout);

    int caught;
    sigwait(&ends, &caught);
    for (uint32_t worker = 0; worker < options.workers; worker++) kill(workers[worker], SIGKILL);
    while (wait(NULL) > 0) {}
    report(all);
    return caught == SIGCHLD;
}

/* Answers the frames of one loop turn: receives, checks, chooses, stores and replies.

   What batcher.py does in Python, for frames as they nearly always are: four fields in their usual
   form, judged by a plain network. Where any of them is something else, nothing is done at all, and
   Python takes them one by one. */

#include "learn/forward.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

/* Numbers on the wire are Python's to the last bit. */
#pragma STDC FP_CONTRACT OFF
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("fp-contract=off")
#endif

#define SOURCES 5
#define EXPERT 2
#define ENDED 3
#define START 4
#define ALL_FLAGS 7
#define HEADER 4
#define REPLY 128
#define MOST_HEADS 15
#define MOST_CONTROLS 7
#define MOST_ROWS 1024
#define CHUNK 65536 /* bytes received at once, at most */
#define MOST_REWARD 3e38
#define MOST_VALUE 1e18f

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* where it is not there, Python has the signal ignored */
#endif

struct session { /* session.py */
    int64_t last_sequence;
    int64_t last_index;
    int64_t frames;
    int64_t guided_before;
    int64_t sources[SOURCES];
    double episode_return;
    double arrived_s;
    double latency_s;
    double seen_s;
    const int32_t *outlet; /* the descriptor that replies go out by, -1 if Python must send them */
    int32_t reply_bytes;
    uint8_t reply[REPLY];
};

struct left { /* what Python has to see to */
    int32_t row;
    int32_t sent;  /* bytes of its reply, where that was not all of it; -1 where it was */
    int32_t ended; /* whether its episode did */
};

struct lane { /* lane.py */
    int64_t capacity;
    int32_t rewards;
    int32_t observation_bytes;
    int32_t mark_bytes; /* of the type that stands before the observation */
    uint8_t mark[8];
    int32_t discrete; /* controls on the wire */
    int32_t joint;    /* whether one head chooses for all of them */
    int32_t heads;    /* choices that are stored; the only one is 0 where nothing is discrete */
    int32_t controls; /* continuous ones */
    const int32_t *choices; /* (discrete) */
    const double *middles;  /* (bins) what a continuous control's choices stand for, in -1..1 */
    const double *ranges;   /* (controls, 2) the lowest and highest on the wire */
    uint8_t *observation;
    int16_t *choice;
    float *continuous;
    float *reward;
    uint8_t *flags;
    uint8_t *source;
    uint32_t *version;
    int32_t *next;
    int32_t *prev;
    int64_t *head;
    int64_t *head_again;
    struct session **sessions;      /* (rows) whose frames these are */
    const double *luck;             /* (dice, 2) dice.py: the first below epsilon explores */
    const int32_t *explored_choice; /* (dice, heads) what exploring frames do */
    const double *explored_place;   /* (dice, controls) the same of continuous controls */
    const double *noise;            /* (dice, controls) normal, on top of the others' */
    int64_t *next_dice;
    double *latency_s;              /* (rows) */
    struct left *left;              /* (rows) */
    uint8_t *inbox;                 /* messages that wait, one behind the other */
    int64_t *ends;                  /* (rows) where each ends */
    int32_t rows;                   /* that wait */
};

/* What became of what a client sent; what is more than these is bytes for Python to read. */
enum { TAKEN = 0, LEFT = -1, NOTHING = -2, GONE = -3 };

struct frame {
    int64_t sequence;
    const uint8_t *observation;
    double reward;
    int32_t prev; /* slot */
    uint8_t flags;
    uint8_t source;
    int16_t choice[MOST_HEADS];
    double place[MOST_CONTROLS]; /* of continuous controls, in -1..1 */
};

static uint64_t big_endian(const uint8_t *at, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value = value << 8 | at[i];
    return value;
}

static double now_s(void)
{
    struct timespec now;
#ifdef __APPLE__
    clock_gettime(CLOCK_UPTIME_RAW, &now); /* what Python's monotonic clock is there */
#else
    clock_gettime(CLOCK_MONOTONIC, &now);
#endif
    return now.tv_sec + now.tv_nsec * 1e-9;
}

/* Give the bytes of the message that begins here if it is as long as a usual frame, else 0. */
static int64_t usual_bytes(const struct lane *lane, const uint8_t *at, const uint8_t *end)
{
    if (end - at < HEADER + 2 || at[4] != 0x94 || (at[5] != 0xcd && at[5] != 0xce))
        return 0;
    int width = at[5] == 0xcd ? 2 : 4;
    int64_t length = 2 + width + 1 + 1 + 9 * lane->rewards + lane->mark_bytes;
    length += lane->observation_bytes;
    int64_t told = at[0] | at[1] << 8 | at[2] << 16 | (int64_t)at[3] << 24;
    return told == length && end - at >= HEADER + length ? HEADER + length : 0;
}

/* Read a frame of the usual form; give where it ends, or NULL for anything else. */
static const uint8_t *read_frame(const struct lane *lane, const uint8_t *at, const uint8_t *end,
                                 struct frame *frame)
{
    if (!usual_bytes(lane, at, end))
        return NULL;
    int width = at[5] == 0xcd ? 2 : 4;
    at += HEADER + 2;
    frame->sequence = big_endian(at, width);
    frame->flags = at[width];
    at += width + 1;
    if (frame->flags > ALL_FLAGS || *at++ != (0x90 | lane->rewards))
        return NULL;
    frame->reward = 0;
    for (int i = 0; i < lane->rewards; i++, at += 9) {
        if (at[0] != 0xcb)
            return NULL;
        uint64_t bits = big_endian(at + 1, 8);
        double reward;
        memcpy(&reward, &bits, sizeof reward);
        frame->reward += reward;
    }
    if (!(fabs(frame->reward) <= MOST_REWARD) || memcmp(at, lane->mark, lane->mark_bytes))
        return NULL;
    frame->observation = at + lane->mark_bytes;
    return frame->observation + lane->observation_bytes;
}

/* Lay an observation before the network; say whether every value can be worked with. */
static int lay_out(const struct network *network, const uint8_t *observation, float *x)
{
    int values = network->sizes[0];
    if (network->value_bytes == 1) {
        for (int i = 0; i < values; i++)
            x[i] = observation[i];
        return 1;
    }
    memcpy(x, observation, values * sizeof(float));
    int sound = 1;
    for (int i = 0; i < values; i++)
        sound &= fabsf(x[i]) <= MOST_VALUE; /* false for NaN */
    return sound;
}

/* Do what the network thinks best: a head's best choice, a continuous control's best bin. */
static void decide(const struct lane *lane, const struct network *network, const float *worths,
                   const double *noise, double amount, struct frame *frame)
{
    int discrete = network->heads - lane->controls, start = 0;
    frame->choice[0] = 0; /* where nothing is discrete */
    for (int head = 0; head < network->heads; start = network->ends[head++]) {
        int best = best_of(worths, start, network->ends[head]);
        if (head < discrete)
            frame->choice[head] = best;
        else
            frame->place[head - discrete] =
                fmax(-1, fmin(1, lane->middles[best] + amount * noise[head - discrete]));
    }
}

/* Do what the dice say. */
static void explore(const struct lane *lane, int64_t dice, struct frame *frame)
{
    for (int head = 0; head < lane->heads; head++)
        frame->choice[head] = lane->explored_choice[dice * lane->heads + head];
    for (int control = 0; control < lane->controls; control++)
        frame->place[control] = lane->explored_place[dice * lane->controls + control];
}

/* Store frames behind the head: the data, then the head, then the links to them. */
static void store(const struct lane *lane, struct frame *frames, int rows, uint32_t version)
{
    int heads = lane->heads, controls = lane->controls;
    int64_t first = *lane->head, capacity = lane->capacity;
    int64_t alive = first + rows > capacity ? first + rows - capacity : 0;
    for (int row = 0; row < rows; row++) {
        struct frame *frame = &frames[row];
        struct session *session = lane->sessions[row];
        int64_t slot = (first + row) % capacity;
        /* A gap in the sequence cuts the chain: what happened in between is not known. */
        int follows = !(frame->flags & START) && frame->sequence == session->last_sequence + 1;
        int64_t before = follows ? session->last_index : -1;
        frame->prev = before >= alive ? before % capacity : -1;
        memcpy(lane->observation + slot * lane->observation_bytes, frame->observation,
               lane->observation_bytes);
        memcpy(lane->choice + slot * heads, frame->choice, heads * sizeof(int16_t));
        for (int control = 0; control < controls; control++)
            lane->continuous[slot * controls + control] = frame->place[control];
        lane->reward[slot] = frame->reward;
        lane->flags[slot] = frame->flags;
        lane->source[slot] = frame->source;
        lane->version[slot] = version;
        lane->next[slot] = -1;
        lane->prev[slot] = frame->prev;
    }
    __atomic_store_n(lane->head, first + rows, __ATOMIC_RELEASE);
    __atomic_store_n(lane->head_again, first + rows, __ATOMIC_RELEASE);
    for (int row = 0; row < rows; row++)
        if (frames[row].prev >= 0)
            __atomic_store_n(&lane->next[frames[row].prev], (first + row) % capacity,
                             __ATOMIC_RELEASE);
}

/* Write a number of 0 or more in its shortest msgpack form. */
static uint8_t *number(uint8_t *at, uint32_t value)
{
    int bytes = value < 1 << 7 ? 0 : value < 1 << 8 ? 1 : value < 1 << 16 ? 2 : 4;
    static const uint8_t kind[] = {0, 0xcc, 0xcd, 0, 0xce};
    if (!bytes) {
        *at++ = value;
        return at;
    }
    *at++ = kind[bytes];
    while (bytes--)
        *at++ = value >> (8 * bytes);
    return at;
}

/* Write a continuous control's place as the game knows it. */
static uint8_t *amount(uint8_t *at, double place, double low, double high)
{
    /* Bounded: a number just over 1 must not leave the announced range. */
    double value = fmin(fmax(low + (place + 1) / 2 * (high - low), low), high);
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    *at++ = 0xcb;
    for (int byte = 7; byte >= 0; byte--)
        *at++ = bits >> (8 * byte);
    return at;
}

/* Write the Action that answers a frame to its session. */
static void encode(const struct lane *lane, const struct frame *frame, struct session *session)
{
    uint8_t *at = session->reply + HEADER;
    *at++ = 0x94;
    at = number(at, frame->sequence);
    *at++ = 0x90 | lane->discrete;
    if (lane->joint) {
        int apart[MOST_HEADS], joint = frame->choice[0];
        for (int i = lane->discrete - 1; i >= 0; i--, joint /= lane->choices[i + 1])
            apart[i] = joint % lane->choices[i];
        for (int i = 0; i < lane->discrete; i++)
            at = number(at, apart[i]);
    } else
        for (int i = 0; i < lane->discrete; i++)
            at = number(at, frame->choice[i]);
    *at++ = 0x90 | lane->controls;
    for (int i = 0; i < lane->controls; i++)
        at = amount(at, frame->place[i], lane->ranges[2 * i], lane->ranges[2 * i + 1]);
    *at++ = frame->source;
    session->reply_bytes = at - session->reply;
    uint32_t length = session->reply_bytes - HEADER;
    for (int i = 0; i < HEADER; i++)
        session->reply[i] = length >> (8 * i);
}

/* Keep what a frame brought on its session. */
static void note(const struct frame *frame, int64_t index, struct session *session)
{
    session->frames++;
    session->sources[frame->source]++;
    session->last_sequence = frame->sequence;
    session->last_index = frame->flags & ENDED ? -1 : index;
    if (frame->flags & START) {
        session->episode_return = 0; /* a start frame's reward belongs to no action */
        session->guided_before = 0;
        for (int source = EXPERT; source < SOURCES; source++)
            session->guided_before += session->sources[source];
    } else
        session->episode_return += frame->reward;
}

static int64_t waiting_bytes(const struct lane *lane)
{
    return lane->rows ? lane->ends[lane->rows - 1] : 0;
}

/* Let what stands behind the waiting messages wait too, if it is as long as a usual frame. */
static int keep(struct lane *lane, struct session *session, int64_t bytes)
{
    int64_t start = waiting_bytes(lane);
    const uint8_t *at = lane->inbox + start;
    if (!bytes || lane->rows == MOST_ROWS || usual_bytes(lane, at, at + bytes) != bytes)
        return 0;
    session->arrived_s = now_s();
    lane->sessions[lane->rows] = session;
    lane->ends[lane->rows++] = start + bytes;
    return 1;
}

/* Let a message wait; say whether it does. */
int32_t put(struct lane *lane, struct session *session, const uint8_t *message, int64_t bytes)
{
    if (bytes > CHUNK)
        return 0;
    memcpy(lane->inbox + waiting_bytes(lane), message, bytes);
    return keep(lane, session, bytes);
}

/* Receive what a client has sent. It waits if it is TAKEN; else Python has to read so many bytes
   behind what waits. */
int32_t receive(struct lane *lane, struct session *session, int32_t descriptor)
{
    ssize_t got = recv(descriptor, lane->inbox + waiting_bytes(lane), CHUNK, MSG_DONTWAIT);
    if (got < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? NOTHING : GONE;
    if (got == 0)
        return GONE;
    return keep(lane, session, got) ? TAKEN : got;
}

/* Answer each frame that waits; give how many rows are left to Python, or -1 if all of it is: then
   they wait on. There must be dice for all of them. */
int32_t answer(struct lane *lane, const struct network *network, uint32_t version, double epsilon,
               double noise)
{
    struct frame frames[MOST_ROWS];
    int rows = lane->rows;
    const uint8_t *at = lane->inbox, *end = at + waiting_bytes(lane);
    for (int row = 0; row < rows; row++) {
        at = read_frame(lane, at, end, &frames[row]);
        if (!at || frames[row].sequence <= lane->sessions[row]->last_sequence ||
            !lay_out(network, frames[row].observation, network->from + row * network->widest))
            return -1;
    }
    lane->rows = 0;
    const float *worths = forward(network, rows) ? network->to : network->from;
    for (int row = 0; row < rows; row++, worths += network->widest) {
        int64_t dice = (*lane->next_dice)++;
        frames[row].source = lane->luck[2 * dice] < epsilon;
        if (frames[row].source)
            explore(lane, dice, &frames[row]);
        else
            decide(lane, network, worths, lane->noise + dice * lane->controls, noise,
                   &frames[row]);
    }
    int64_t first = *lane->head;
    store(lane, frames, rows, version);
    int left = 0;
    for (int row = 0; row < rows; row++) {
        struct session *session = lane->sessions[row];
        encode(lane, &frames[row], session);
        note(&frames[row], first + row, session);
        ssize_t sent = 0;
        if (*session->outlet >= 0)
            sent = send(*session->outlet, session->reply, session->reply_bytes,
                        MSG_DONTWAIT | MSG_NOSIGNAL);
        int ended = (frames[row].flags & ENDED) != 0;
        if (sent != session->reply_bytes || ended)
            lane->left[left++] = (struct left){
                row, sent == session->reply_bytes ? -1 : sent < 0 ? 0 : sent, ended};
    }
    double now = now_s();
    for (int row = 0; row < rows; row++) {
        struct session *session = lane->sessions[row];
        session->seen_s = now;
        session->latency_s = lane->latency_s[row] = now - session->arrived_s;
    }
    return left;
}

/* Receive and answer what a client has sent while nobody else's frame waits: TAKEN, or LEFT where
   Python has to see to it. */
int32_t serve(struct lane *lane, const struct network *network, struct session *session,
              int32_t descriptor, uint32_t version, double epsilon, double noise)
{
    int got = receive(lane, session, descriptor);
    if (got != TAKEN)
        return got;
    int64_t bytes = waiting_bytes(lane);
    int left = answer(lane, network, version, epsilon, noise);
    if (left < 0) {
        lane->rows = 0;
        return bytes;
    }
    return left ? LEFT : TAKEN;
}

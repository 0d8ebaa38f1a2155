/* A stand-in for libnvidia-ml.so.1: the real Python binding loads it and finds the node that a text file describes.
 *
 * The file is named by FAKENVML_STATE and is read again as soon as it changes, so a test can change the world between
 * (or during) two calls. scenario.py writes it and documents the keys. A value that the file does not give is
 * NOT_SUPPORTED on that card. Nothing here is shared with the product: layouts follow NVIDIA's published header.
 *
 * Beside NVML it exports what a test wants to know of its subject: fakenvml_calls(name), fakenvml_references(),
 * fakenvml_pulled(): how often the library was shut down while somebody waited in it for events,
 * fakenvml_gpm_samples(): GPM samples that were allocated and not freed.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum {
    OK = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9, TIMEOUT = 10, GPU_IS_LOST = 15, ARGUMENT_VERSION_MISMATCH = 25, UNKNOWN = 999
};

/* ---- every call that can be told to fail, sleep or hang, by the name it is exported under ---- */
#define CALLS(X) \
    X(nvmlInitWithFlags) X(nvmlShutdown) X(nvmlSystemGetDriverVersion) X(nvmlSystemGetNVMLVersion) \
    X(nvmlSystemGetCudaDriverVersion) X(nvmlSystemGetCudaDriverVersion_v2) X(nvmlDeviceGetCount_v2) \
    X(nvmlDeviceGetHandleByIndex_v2) X(nvmlDeviceGetHandleByUUID) X(nvmlDeviceGetHandleByPciBusId_v2) \
    X(nvmlDeviceGetUUID) X(nvmlDeviceGetName) X(nvmlDeviceGetSerial) X(nvmlDeviceGetMinorNumber) X(nvmlDeviceGetIndex) \
    X(nvmlDeviceGetPciInfo_v3) X(nvmlDeviceGetMemoryInfo) X(nvmlDeviceGetMemoryInfo_v2) \
    X(nvmlDeviceGetBAR1MemoryInfo) X(nvmlDeviceGetUtilizationRates) X(nvmlDeviceGetEncoderUtilization) \
    X(nvmlDeviceGetDecoderUtilization) X(nvmlDeviceGetJpgUtilization) X(nvmlDeviceGetOfaUtilization) \
    X(nvmlDeviceGetPowerUsage) X(nvmlDeviceGetEnforcedPowerLimit) X(nvmlDeviceGetPowerManagementLimit) X(nvmlDeviceGetPowerManagementLimitConstraints) \
    X(nvmlDeviceGetTotalEnergyConsumption) X(nvmlDeviceGetTemperatureV) X(nvmlDeviceGetTemperature) \
    X(nvmlDeviceGetClockInfo) X(nvmlDeviceGetMaxClockInfo) X(nvmlDeviceGetCurrentClocksEventReasons) \
    X(nvmlDeviceGetCurrentClocksThrottleReasons) X(nvmlDeviceGetPcieThroughput) X(nvmlDeviceGetFieldValues) \
    X(nvmlDeviceGetTotalEccErrors) X(nvmlDeviceGetRemappedRows) X(nvmlDeviceGetFanSpeed) \
    X(nvmlDeviceGetPerformanceState) X(nvmlDeviceGetPersistenceMode) X(nvmlDeviceGetComputeMode) \
    X(nvmlDeviceGetCudaComputeCapability) X(nvmlDeviceGetDisplayActive) X(nvmlDeviceGetDisplayMode) \
    X(nvmlDeviceGetDriverModel_v2) X(nvmlDeviceGetConfComputeMemSizeInfo) X(nvmlDeviceGetRunningProcessDetailList) \
    X(nvmlDeviceGetComputeRunningProcesses_v2) X(nvmlDeviceGetComputeRunningProcesses_v3) \
    X(nvmlDeviceGetGraphicsRunningProcesses_v2) X(nvmlDeviceGetGraphicsRunningProcesses_v3) \
    X(nvmlDeviceGetMPSComputeRunningProcesses_v2) X(nvmlDeviceGetMPSComputeRunningProcesses_v3) \
    X(nvmlDeviceGetProcessUtilization) X(nvmlDeviceGetProcessesUtilizationInfo) X(nvmlDeviceGetMigMode) \
    X(nvmlDeviceGetMaxMigDeviceCount) X(nvmlDeviceGetMigDeviceHandleByIndex) X(nvmlDeviceIsMigDeviceHandle) \
    X(nvmlDeviceGetDeviceHandleFromMigDeviceHandle) X(nvmlDeviceGetGpuInstanceId) X(nvmlDeviceGetComputeInstanceId) \
    X(nvmlDeviceGetGpuInstanceById) X(nvmlGpuInstanceGetInfo) \
    X(nvmlDeviceGetAttributes_v2) X(nvmlDeviceGetVirtualizationMode) X(nvmlEventSetCreate) \
    X(nvmlGpmQueryDeviceSupport) X(nvmlGpmSampleAlloc) X(nvmlGpmSampleFree) X(nvmlGpmSampleGet) \
    X(nvmlGpmMigSampleGet) X(nvmlGpmMetricsGet) \
    X(nvmlDeviceRegisterEvents) X(nvmlDeviceGetSupportedEventTypes) X(nvmlEventSetWait_v2) X(nvmlEventSetFree)

enum {
#define X(name) CALL_##name,
    CALLS(X)
#undef X
    ANY_CALL, /* "*" in the file */
    N_CALLS
};

static const char *const call_names[N_CALLS] = {
#define X(name) #name,
    CALLS(X)
#undef X
    "*"
};

/* ---- the numbers a card can have: field, key ---- */
#define NUMBERS(X) \
    X(minor, "minor") X(memory_total, "memory.total") X(memory_used, "memory.used") X(memory_free, "memory.free") \
    X(memory_reserved, "memory.reserved") X(util_gpu, "utilization.gpu") X(util_memory, "utilization.memory") \
    X(encoder, "encoder") X(decoder, "decoder") X(jpeg, "jpeg") X(ofa, "ofa") X(power, "power") \
    X(power_limit, "power.limit") X(power_limit_max, "power.limit.max") X(pcie_replays, "pcie.replays") X(energy, "energy") X(temperature, "temperature") \
    X(memory_temperature, "temperature.memory") X(clock_graphics, "clock.graphics") X(clock_sm, "clock.sm") \
    X(clock_memory, "clock.memory") X(clock_video, "clock.video") X(max_graphics, "clock.max.graphics") \
    X(max_sm, "clock.max.sm") X(max_memory, "clock.max.memory") X(max_video, "clock.max.video") \
    X(throttle, "throttle") X(pcie_tx, "pcie.tx") X(pcie_rx, "pcie.rx") X(ecc_corrected, "ecc.corrected") \
    X(ecc_uncorrected, "ecc.uncorrected") X(remap_corrected, "remap.corrected") \
    X(remap_uncorrected, "remap.uncorrected") X(remap_pending, "remap.pending") X(remap_failure, "remap.failure") \
    X(fan, "fan") X(mig_mode, "mig.mode") X(mig_pending, "mig.pending") X(mig_max, "mig.max") \
    X(field_code, "field.code") X(samples_silent, "samples.silent") X(samples_all, "samples.all") \
    X(gi, "gi") X(ci, "ci") X(profile_id, "profile.id") X(placement, "placement") X(gi_slices, "slices.gi") X(ci_slices, "slices.ci") X(multiprocessors, "multiprocessors") \
    X(gpm, "gpm") X(gpm_disturbs, "gpm.disturbs")

enum {
#define X(field, key) F_##field,
    NUMBERS(X)
#undef X
    N_NUMBERS
};

static const char *const number_names[N_NUMBERS] = {
#define X(field, key) key,
    NUMBERS(X)
#undef X
};

typedef struct { int has_code, code, sleep_ms, hang; } Fault;
#define MAX_GPM 300 /* ids of GPM metrics that a test may give */
typedef struct { double value[MAX_GPM]; char has[MAX_GPM]; } Gpm;
typedef struct { uint64_t value[N_NUMBERS]; char has[N_NUMBERS]; char uuid[80], name[96], serial[30], pci[32]; Fault *faults; Gpm *gpm; } Entity;
typedef struct { unsigned pid, kinds, gi, ci; uint64_t memory; } Process; /* kinds: 1 compute, 2 graphics, 4 MPS */
typedef struct { int relative; int64_t stamp; unsigned pid, sm, mem, enc, dec; } Use;
typedef struct { uint64_t seq, xid, type; int slot; } Event;

#define MAX_SLOTS 64
#define MAX_MIG 16
typedef struct {
    Entity self;
    Entity *mig[MAX_MIG];
    Process *processes; int n_processes, cap_processes;
    Use *uses; int n_uses, cap_uses;
} Card;

typedef struct {
    Card *cards[MAX_SLOTS];
    Fault faults[N_CALLS];
    char driver_version[80], nvml_version[80];
    int cuda_version;
    long generation; /* of the driver; a change means it was reloaded */
    Event *events; int n_events, cap_events;
} World;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static World *world;
static struct { struct timespec mtime; ino_t inode; off_t size; } seen;
static char *seen_path;
static uint64_t counted[N_CALLS];
static int references;     /* inits minus shutdowns */
static long alive_since;   /* driver generation at init */
static int waiting, pulled; /* threads that wait for events; shutdowns under them */
static unsigned session;   /* handles of an earlier session are dead */
static int gpm_samples;    /* allocated minus freed */
static char gpm_used[64];  /* by slot: a sample was taken of a MIG GPU */

/* ---- reading the file ---- */
static int find(const char *const *names, int n, const char *name) {
    for (int i = 0; i < n; i++) if (!strcmp(names[i], name)) return i;
    return -1;
}

static void *grown(void *items, int n, int *cap, size_t size) {
    if (n < *cap) return items;
    *cap = *cap ? *cap * 2 : 16;
    return realloc(items, (size_t)*cap * size);
}

static void entity_free(Entity *e) { free(e->faults); free(e->gpm); }

static void world_free(World *w) {
    if (!w) return;
    for (int s = 0; s < MAX_SLOTS; s++) {
        Card *c = w->cards[s];
        if (!c) continue;
        for (int i = 0; i < MAX_MIG; i++) if (c->mig[i]) { entity_free(c->mig[i]); free(c->mig[i]); }
        free(c->processes); free(c->uses); entity_free(&c->self); free(c);
    }
    free(w->events); free(w);
}

/* "call.NAME", "sleep.NAME", "hang.NAME" */
static int fault_set(Fault *faults, const char *key, long value) {
    const char *dot = strchr(key, '.');
    int call = dot ? find(call_names, N_CALLS, dot + 1) : -1;
    if (call < 0) return 0;
    if (!strncmp(key, "call.", 5)) { faults[call].has_code = 1; faults[call].code = (int)value; }
    else if (!strncmp(key, "sleep.", 6)) faults[call].sleep_ms = (int)value;
    else if (!strncmp(key, "hang.", 5)) faults[call].hang = (int)value;
    else return 0;
    return 1;
}

static void text(char *to, size_t size, const char *from) {
    size_t n = strnlen(from, size - 1);
    memcpy(to, from, n);
    to[n] = 0;
}

static int entity_set(Entity *e, const char *key, const char *value) {
    if (!strcmp(key, "uuid")) text(e->uuid, sizeof e->uuid, value);
    else if (!strcmp(key, "name")) text(e->name, sizeof e->name, value);
    else if (!strcmp(key, "serial")) text(e->serial, sizeof e->serial, value);
    else if (!strcmp(key, "pci")) text(e->pci, sizeof e->pci, value);
    else {
        int metric, i = find(number_names, N_NUMBERS, key);
        if (sscanf(key, "gpm.metric.%d", &metric) == 1 && metric >= 0 && metric < MAX_GPM) {
            if (!e->gpm) e->gpm = calloc(1, sizeof(Gpm));
            e->gpm->value[metric] = strtod(value, NULL); /* "nan" and "inf", too */
            e->gpm->has[metric] = 1;
            return 1;
        }
        if (i >= 0) { e->value[i] = strtoull(value, NULL, 0); e->has[i] = 1; return 1; }
        if (!e->faults) e->faults = calloc(N_CALLS, sizeof(Fault));
        return fault_set(e->faults, key, strtol(value, NULL, 0));
    }
    return 1;
}

/* "PID KINDS MEMORY GI CI", kinds a set of C, G, M; "-" for not available */
static void process_add(Card *c, const char *value) {
    char kinds[8], memory[32], gi[16], ci[16];
    Process p = {0};
    if (sscanf(value, "%u %7s %31s %15s %15s", &p.pid, kinds, memory, gi, ci) != 5) return;
    p.kinds = (strchr(kinds, 'C') ? 1 : 0) | (strchr(kinds, 'G') ? 2 : 0) | (strchr(kinds, 'M') ? 4 : 0);
    p.memory = memory[0] == '-' ? UINT64_MAX : strtoull(memory, NULL, 0);
    p.gi = gi[0] == '-' ? UINT32_MAX : (unsigned)strtoul(gi, NULL, 0);
    p.ci = ci[0] == '-' ? UINT32_MAX : (unsigned)strtoul(ci, NULL, 0);
    c->processes = grown(c->processes, c->n_processes, &c->cap_processes, sizeof p);
    c->processes[c->n_processes++] = p;
}

/* "PID STAMP SM MEM ENC DEC", stamp in microseconds since 1970, or now-MICROSECONDS, taken at the time of the call */
static void use_add(Card *c, const char *value) {
    char stamp[32];
    Use u = {0};
    if (sscanf(value, "%u %31s %u %u %u %u", &u.pid, stamp, &u.sm, &u.mem, &u.enc, &u.dec) != 6) return;
    u.relative = !strncmp(stamp, "now", 3);
    u.stamp = strtoll(stamp + (u.relative ? 3 : 0), NULL, 10);
    c->uses = grown(c->uses, c->n_uses, &c->cap_uses, sizeof u);
    c->uses[c->n_uses++] = u;
}

static int card_set(Card *c, const char *key, const char *value) {
    int index, used = 0;
    if (!strcmp(key, "process")) return process_add(c, value), 1;
    if (!strcmp(key, "sample")) return use_add(c, value), 1;
    if (sscanf(key, "mig.%d.%n", &index, &used) == 1 && used > 0 && index >= 0 && index < MAX_MIG) {
        if (!c->mig[index]) c->mig[index] = calloc(1, sizeof(Entity));
        return entity_set(c->mig[index], key + used, value);
    }
    return entity_set(&c->self, key, value);
}

static int world_set(World *w, const char *key, const char *value) {
    int slot, used = 0;
    if (sscanf(key, "gpu.%d.%n", &slot, &used) == 1 && used > 0 && slot >= 0 && slot < MAX_SLOTS) {
        if (!w->cards[slot]) w->cards[slot] = calloc(1, sizeof(Card));
        return card_set(w->cards[slot], key + used, value);
    }
    if (!strcmp(key, "driver.version")) return text(w->driver_version, sizeof w->driver_version, value), 1;
    if (!strcmp(key, "nvml.version")) return text(w->nvml_version, sizeof w->nvml_version, value), 1;
    if (!strcmp(key, "cuda.version")) return w->cuda_version = atoi(value), 1;
    if (!strcmp(key, "driver.generation")) return w->generation = atol(value), 1;
    if (!strcmp(key, "event")) {
        Event e = {.type = 8};
        if (sscanf(value, "%" SCNu64 " %d %" SCNu64 " %" SCNu64, &e.seq, &e.slot, &e.xid, &e.type) < 3) return 0;
        w->events = grown(w->events, w->n_events, &w->cap_events, sizeof e);
        w->events[w->n_events++] = e;
        return 1;
    }
    return fault_set(w->faults, key, strtol(value, NULL, 0));
}

static World *world_read(FILE *file) {
    World *w = calloc(1, sizeof *w);
    char line[512];
    while (fgets(line, sizeof line, file)) {
        char *value = strstr(line, " = ");
        line[strcspn(line, "\r\n")] = 0;
        if (!line[0] || line[0] == '#') continue;
        if (value) *value = 0;
        if (!value || !world_set(w, line, value + 3)) fprintf(stderr, "fakenvml: not understood: %s\n", line);
    }
    return w;
}

static void refresh(void) {
    const char *path = getenv("FAKENVML_STATE");
    struct stat now;
    if (path && (!seen_path || strcmp(path, seen_path))) { /* another file is another node, whose GPUs are undisturbed */
        memset(gpm_used, 0, sizeof gpm_used);
        free(seen_path);
        seen_path = strdup(path);
    }
    if (!path || stat(path, &now)) { world_free(world); world = NULL; memset(&seen, 0, sizeof seen); return; }
    if (world && now.st_mtim.tv_sec == seen.mtime.tv_sec && now.st_mtim.tv_nsec == seen.mtime.tv_nsec &&
        now.st_ino == seen.inode && now.st_size == seen.size) return;
    FILE *file = fopen(path, "r");
    if (!file) return;
    world_free(world);
    world = world_read(file);
    fclose(file);
    seen.mtime = now.st_mtim; seen.inode = now.st_ino; seen.size = now.st_size;
}

/* ---- handles: session, slot and MIG index in a pointer nobody follows ---- */
static void *handle(int slot, int mig) {
    return (void *)(((uintptr_t)0xFA << 40) | ((uintptr_t)session << 24) | ((uintptr_t)slot << 8) | (uintptr_t)(mig + 1));
}
static int slot_of(const void *h) { return (int)(((uintptr_t)h >> 8) & 0xFF); }
static int mig_of(const void *h) { return (int)((uintptr_t)h & 0xFF) - 1; }
static int of_now(const void *h) { return ((uintptr_t)h >> 40) == 0xFA && (((uintptr_t)h >> 24) & 0xFFFF) == (session & 0xFFFF); }

static int slot_at(unsigned index) { /* a card's index is its rank among those present */
    for (int s = 0; s < MAX_SLOTS; s++) if (world->cards[s] && !index--) return s;
    return -1;
}
static int index_at(int slot) {
    int index = 0;
    for (int s = 0; s < slot; s++) index += world->cards[s] != NULL;
    return index;
}

/* ---- what every call does first ---- */
static void pause_ms(int ms) {
    struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000L};
    nanosleep(&t, NULL);
}

static Fault fault_of(int call, int slot, int mig) {
    const Fault none = {0};
    if (!world) return none;
    Card *c = slot >= 0 ? world->cards[slot] : NULL;
    const Fault *places[3] = {c && mig >= 0 && c->mig[mig] ? c->mig[mig]->faults : NULL, c ? c->self.faults : NULL, world->faults};
    for (int i = 0; i < 3; i++) {
        const int own = call != CALL_nvmlInitWithFlags && call != CALL_nvmlShutdown; /* "*" never means these two */
        if (!places[i]) continue;
        const Fault exact = places[i][call], any = places[i][ANY_CALL];
        if (exact.has_code || exact.sleep_ms || exact.hang) return exact;
        if (own && (any.has_code || any.sleep_ms || any.hang)) return any;
    }
    return none;
}

/* Sleeps, hangs and fails as the file says. Holds the lock when it returns. */
static int trouble(int call, int slot, int mig) {
    counted[call]++;
    refresh();
    Fault f = fault_of(call, slot, mig);
    if (f.sleep_ms) {
        pthread_mutex_unlock(&lock); pause_ms(f.sleep_ms); pthread_mutex_lock(&lock);
        refresh();
    }
    while ((f = fault_of(call, slot, mig)).hang) {
        pthread_mutex_unlock(&lock); pause_ms(2); pthread_mutex_lock(&lock);
        refresh();
    }
    return f.has_code ? f.code : OK;
}

static int up(void) { return world && references > 0 && world->generation == alive_since; }

static int enter_system(int call) {
    pthread_mutex_lock(&lock);
    int code = trouble(call, -1, -1);
    return !up() ? UNINITIALIZED : code;
}

/* Finds the card (and instance) of a handle. Holds the lock when it returns, whatever it returns. */
static int enter(int call, void *h, Card **card, Entity **entity) {
    pthread_mutex_lock(&lock);
    int slot = slot_of(h), mig = mig_of(h);
    int bad = !of_now(h) || slot >= MAX_SLOTS || mig >= MAX_MIG;
    int code = trouble(call, bad ? -1 : slot, bad ? -1 : mig);
    if (!up()) return UNINITIALIZED;
    if (bad || !of_now(h)) return INVALID_ARGUMENT;
    *card = world->cards[slot];
    if (!*card) return GPU_IS_LOST;
    *entity = mig < 0 ? &(*card)->self : (*card)->mig[mig];
    return !*entity ? INVALID_ARGUMENT : code;
}

#define LEAVE(code) do { int leave_code = (code); pthread_mutex_unlock(&lock); return leave_code; } while (0)
#define ENTER(name) \
    Card *card = NULL; Entity *e = NULL; \
    int code = enter(CALL_##name, device, &card, &e); \
    if (code) LEAVE(code)
#define IS_INSTANCE (e != &card->self)
#define PHYSICAL(name) ENTER(name); if (IS_INSTANCE) LEAVE(NOT_SUPPORTED)
#define NEED(field) if (!e->has[F_##field]) LEAVE(NOT_SUPPORTED)
#define GET(field) (e->value[F_##field])
#define MIG_ON (card->self.has[F_mig_mode] && card->self.value[F_mig_mode])

static int put(char *to, unsigned size, const char *from) {
    if (!from[0]) return NOT_SUPPORTED;
    if (strlen(from) >= size) return INSUFFICIENT_SIZE;
    strcpy(to, from);
    return OK;
}

/* ---- for tests ---- */
uint64_t fakenvml_calls(const char *name) {
    int call = find(call_names, N_CALLS, name);
    pthread_mutex_lock(&lock);
    uint64_t n = call < 0 ? UINT64_MAX : counted[call];
    pthread_mutex_unlock(&lock);
    return n;
}
int fakenvml_references(void) { return references; }
int fakenvml_pulled(void) { return pulled; }
int fakenvml_gpm_samples(void) { return gpm_samples; }

/* ---- life ---- */
int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    pthread_mutex_lock(&lock);
    int code = trouble(CALL_nvmlInitWithFlags, -1, -1);
    if (!world) LEAVE(DRIVER_NOT_LOADED);
    if (code) LEAVE(code);
    if (!up()) { references = 0; alive_since = world->generation; session++; }
    references++;
    LEAVE(OK);
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void) {
    pthread_mutex_lock(&lock);
    int code = trouble(CALL_nvmlShutdown, -1, -1);
    if (code) LEAVE(code);
    if (references <= 0) LEAVE(UNINITIALIZED);
    references--;
    pulled += !references && waiting;
    LEAVE(OK);
}

const char *nvmlErrorString(int code) {
    static __thread char name[32];
    snprintf(name, sizeof name, "error %d", code);
    return name;
}

int nvmlSystemGetDriverVersion(char *version, unsigned length) {
    int code = enter_system(CALL_nvmlSystemGetDriverVersion);
    LEAVE(code ? code : put(version, length, world->driver_version));
}
int nvmlSystemGetNVMLVersion(char *version, unsigned length) {
    int code = enter_system(CALL_nvmlSystemGetNVMLVersion);
    LEAVE(code ? code : put(version, length, world->nvml_version));
}
static int cuda(int call, int *version) {
    int code = enter_system(call);
    if (!code) *version = world->cuda_version;
    LEAVE(code);
}
int nvmlSystemGetCudaDriverVersion(int *version) { return cuda(CALL_nvmlSystemGetCudaDriverVersion, version); }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { return cuda(CALL_nvmlSystemGetCudaDriverVersion_v2, version); }

/* ---- finding cards ---- */
int nvmlDeviceGetCount_v2(unsigned *count) {
    int code = enter_system(CALL_nvmlDeviceGetCount_v2);
    if (!code) *count = (unsigned)index_at(MAX_SLOTS);
    LEAVE(code);
}

/* Finding a card can fail as the card's own fault: the handle is made first, then entered like any other. */
static int found(int call, int slot, void **device) {
    if (slot < 0) LEAVE(NOT_FOUND);
    void *h = handle(slot, -1);
    pthread_mutex_unlock(&lock);
    Card *card; Entity *e;
    int code = enter(call, h, &card, &e);
    if (!code) *device = h;
    LEAVE(code);
}
static int look(void) { pthread_mutex_lock(&lock); refresh(); return up(); }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    if (!look()) LEAVE(UNINITIALIZED);
    int slot = slot_at(index);
    if (slot < 0) LEAVE(INVALID_ARGUMENT);
    return found(CALL_nvmlDeviceGetHandleByIndex_v2, slot, device);
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    if (!look()) LEAVE(UNINITIALIZED);
    for (int s = 0; s < MAX_SLOTS; s++) {
        Card *c = world->cards[s];
        if (c && !strcmp(c->self.uuid, uuid)) return found(CALL_nvmlDeviceGetHandleByUUID, s, device);
        for (int i = 0; c && i < MAX_MIG; i++)
            if (c->mig[i] && !strcmp(c->mig[i]->uuid, uuid)) { *device = handle(s, i); LEAVE(OK); }
    }
    LEAVE(NOT_FOUND);
}
int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, void **device) {
    if (!look()) LEAVE(UNINITIALIZED);
    for (int s = 0; s < MAX_SLOTS; s++)
        if (world->cards[s] && !strcasecmp(world->cards[s]->self.pci, pci))
            return found(CALL_nvmlDeviceGetHandleByPciBusId_v2, s, device);
    LEAVE(NOT_FOUND);
}

/* ---- identity ---- */
int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length) { ENTER(nvmlDeviceGetUUID); LEAVE(put(uuid, length, e->uuid)); }
int nvmlDeviceGetName(void *device, char *name, unsigned length) { ENTER(nvmlDeviceGetName); LEAVE(put(name, length, e->name)); }
int nvmlDeviceGetSerial(void *device, char *serial, unsigned length) {
    PHYSICAL(nvmlDeviceGetSerial);
    LEAVE(put(serial, length, e->serial));
}
int nvmlDeviceGetIndex(void *device, unsigned *index) {
    ENTER(nvmlDeviceGetIndex);
    *index = (unsigned)(IS_INSTANCE ? mig_of(device) : index_at(slot_of(device)));
    LEAVE(OK);
}

typedef struct {
    char legacy[16];
    unsigned domain, bus, device, ids, subsystem;
    char bus_id[32];
} PciInfo;
int nvmlDeviceGetPciInfo_v3(void *device, PciInfo *pci) {
    PHYSICAL(nvmlDeviceGetPciInfo_v3);
    if (!e->pci[0]) LEAVE(NOT_SUPPORTED);
    memset(pci, 0, sizeof *pci);
    text(pci->bus_id, sizeof pci->bus_id, e->pci);
    text(pci->legacy, sizeof pci->legacy, strlen(e->pci) > 12 ? e->pci + 4 : e->pci);
    sscanf(e->pci, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
    LEAVE(OK);
}

/* ---- one number each ---- */
#define NUMBER(name, type, field) \
    int name(void *device, type *out) { PHYSICAL(name); NEED(field); *out = (type)GET(field); LEAVE(OK); }
#define ENGINE(name, field) \
    int name(void *device, unsigned *percent, unsigned *period) { \
        PHYSICAL(name); if (MIG_ON) LEAVE(NOT_SUPPORTED); NEED(field); \
        *percent = (unsigned)GET(field); *period = 166666; LEAVE(OK); }
#define CONSTANT(name, type, number) \
    int name(void *device, type *out) { ENTER(name); *out = (number); LEAVE(OK); }
NUMBER(nvmlDeviceGetMinorNumber, unsigned, minor)
NUMBER(nvmlDeviceGetPowerUsage, unsigned, power)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, unsigned, power_limit)
NUMBER(nvmlDeviceGetPowerManagementLimit, unsigned, power_limit)
NUMBER(nvmlDeviceGetTotalEnergyConsumption, uint64_t, energy)
NUMBER(nvmlDeviceGetCurrentClocksEventReasons, uint64_t, throttle)
NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, uint64_t, throttle)
NUMBER(nvmlDeviceGetFanSpeed, unsigned, fan)
ENGINE(nvmlDeviceGetEncoderUtilization, encoder)
ENGINE(nvmlDeviceGetDecoderUtilization, decoder)
ENGINE(nvmlDeviceGetJpgUtilization, jpeg)
ENGINE(nvmlDeviceGetOfaUtilization, ofa)
CONSTANT(nvmlDeviceGetPerformanceState, unsigned, 0)
CONSTANT(nvmlDeviceGetPersistenceMode, unsigned, 1)
CONSTANT(nvmlDeviceGetComputeMode, unsigned, 0)
CONSTANT(nvmlDeviceGetDisplayActive, unsigned, 0)
CONSTANT(nvmlDeviceGetDisplayMode, unsigned, 1)
CONSTANT(nvmlDeviceGetVirtualizationMode, unsigned, 0)
CONSTANT(nvmlDeviceGetSupportedEventTypes, uint64_t, 8)

int nvmlDeviceGetPowerManagementLimitConstraints(void *device, unsigned *least, unsigned *most) {
    PHYSICAL(nvmlDeviceGetPowerManagementLimitConstraints);
    NEED(power_limit_max);
    *least = 100000; *most = (unsigned)GET(power_limit_max);
    LEAVE(OK);
}

/* known to the library, never supported on these cards */
int nvmlDeviceGetDriverModel_v2(void *device, unsigned *a, unsigned *b) { (void)a; (void)b; ENTER(nvmlDeviceGetDriverModel_v2); LEAVE(NOT_SUPPORTED); }
int nvmlDeviceGetConfComputeMemSizeInfo(void *device, void *info) { (void)info; ENTER(nvmlDeviceGetConfComputeMemSizeInfo); LEAVE(NOT_SUPPORTED); }
int nvmlDeviceGetRunningProcessDetailList(void *device, void *list) { (void)list; ENTER(nvmlDeviceGetRunningProcessDetailList); LEAVE(NOT_SUPPORTED); }

int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) {
    ENTER(nvmlDeviceGetCudaComputeCapability);
    *major = 8; *minor = 0;
    LEAVE(OK);
}

typedef struct { unsigned gpu, memory; } Utilization;
int nvmlDeviceGetUtilizationRates(void *device, Utilization *u) {
    PHYSICAL(nvmlDeviceGetUtilizationRates);
    if (MIG_ON) LEAVE(NOT_SUPPORTED);
    NEED(util_gpu);
    u->gpu = (unsigned)GET(util_gpu); u->memory = (unsigned)GET(util_memory);
    LEAVE(OK);
}

typedef struct { unsigned version, sensor; int temperature; } Temperature;
int nvmlDeviceGetTemperatureV(void *device, Temperature *t) {
    PHYSICAL(nvmlDeviceGetTemperatureV);
    if (t->version != (sizeof *t | 1u << 24)) LEAVE(ARGUMENT_VERSION_MISMATCH);
    NEED(temperature);
    t->temperature = (int)GET(temperature);
    LEAVE(OK);
}
int nvmlDeviceGetTemperature(void *device, unsigned sensor, unsigned *out) {
    (void)sensor;
    PHYSICAL(nvmlDeviceGetTemperature);
    NEED(temperature);
    *out = (unsigned)GET(temperature);
    LEAVE(OK);
}

int nvmlDeviceGetClockInfo(void *device, unsigned type, unsigned *mhz) {
    PHYSICAL(nvmlDeviceGetClockInfo);
    if (type > 3) LEAVE(INVALID_ARGUMENT);
    if (!e->has[F_clock_graphics + type]) LEAVE(NOT_SUPPORTED);
    *mhz = (unsigned)e->value[F_clock_graphics + type];
    LEAVE(OK);
}
int nvmlDeviceGetMaxClockInfo(void *device, unsigned type, unsigned *mhz) {
    PHYSICAL(nvmlDeviceGetMaxClockInfo);
    if (type > 3) LEAVE(INVALID_ARGUMENT);
    if (!e->has[F_max_graphics + type]) LEAVE(NOT_SUPPORTED);
    *mhz = (unsigned)e->value[F_max_graphics + type];
    LEAVE(OK);
}

/* the real one measures for 20 ms, and so does this */
int nvmlDeviceGetPcieThroughput(void *device, unsigned counter, unsigned *kb_per_second) {
    PHYSICAL(nvmlDeviceGetPcieThroughput);
    NEED(pcie_tx);
    pthread_mutex_unlock(&lock); pause_ms(20); pthread_mutex_lock(&lock);
    *kb_per_second = counter ? 2000 : 1000;
    LEAVE(OK);
}

int nvmlDeviceGetTotalEccErrors(void *device, unsigned type, unsigned counter, uint64_t *count) {
    (void)counter;
    PHYSICAL(nvmlDeviceGetTotalEccErrors);
    NEED(ecc_corrected);
    *count = type ? GET(ecc_uncorrected) : GET(ecc_corrected);
    LEAVE(OK);
}
int nvmlDeviceGetRemappedRows(void *device, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failure) {
    PHYSICAL(nvmlDeviceGetRemappedRows);
    NEED(remap_corrected);
    *corrected = (unsigned)GET(remap_corrected); *uncorrected = (unsigned)GET(remap_uncorrected);
    *pending = (unsigned)GET(remap_pending); *failure = (unsigned)GET(remap_failure);
    LEAVE(OK);
}

/* ---- memory ---- */
typedef struct { uint64_t total, free, used; } Memory1;
typedef struct { unsigned version; uint64_t total, reserved, free, used; } Memory2;
static uint64_t memory_free(const Entity *e) {
    return e->has[F_memory_free] ? GET(memory_free) : GET(memory_total) - GET(memory_used) - GET(memory_reserved);
}
int nvmlDeviceGetMemoryInfo(void *device, Memory1 *m) {
    ENTER(nvmlDeviceGetMemoryInfo);
    if (IS_INSTANCE && gpm_used[slot_of(device)]) LEAVE(UNKNOWN);
    NEED(memory_total);
    m->total = GET(memory_total); m->free = memory_free(e); m->used = GET(memory_used) + GET(memory_reserved);
    LEAVE(OK);
}
int nvmlDeviceGetMemoryInfo_v2(void *device, Memory2 *m) {
    ENTER(nvmlDeviceGetMemoryInfo_v2);
    if (IS_INSTANCE && gpm_used[slot_of(device)]) LEAVE(UNKNOWN);
    if (m->version != (sizeof *m | 2u << 24)) LEAVE(ARGUMENT_VERSION_MISMATCH);
    NEED(memory_total);
    m->total = GET(memory_total); m->reserved = GET(memory_reserved); m->free = memory_free(e); m->used = GET(memory_used);
    LEAVE(OK);
}
int nvmlDeviceGetBAR1MemoryInfo(void *device, Memory1 *m) {
    ENTER(nvmlDeviceGetBAR1MemoryInfo);
    NEED(memory_total);
    m->total = 128ull << 30; m->used = 4ull << 20; m->free = m->total - m->used;
    LEAVE(OK);
}

/* ---- field values: each entry has its own return code and type ---- */
typedef struct {
    uint32_t field, scope;
    int64_t timestamp, latency;
    unsigned type; int code;
    union { double d; unsigned u; unsigned long ul; uint64_t ull; int64_t sll; int s; unsigned short us; } value;
} FieldValue;
static void field_fill(const Entity *e, FieldValue *v) {
    int field = v->field == 82 ? F_memory_temperature : v->field == 83 ? F_energy : v->field == 197 ? F_pcie_tx
              : v->field == 198 ? F_pcie_rx : v->field == 94 ? F_pcie_replays : v->field == 185 || v->field == 186 ? F_power : -1;
    v->timestamp = 0; v->latency = 0; v->value.ull = UINT64_MAX; /* junk where the code says error */
    v->code = field >= 0 && e->has[field] ? OK : e->has[F_field_code] ? (int)GET(field_code) : NOT_SUPPORTED;
    v->type = v->field == 82 || v->field == 94 || v->field == 185 || v->field == 186 ? 1 : 3;
    if (v->code) return;
    if (v->type == 1) v->value.u = (unsigned)e->value[field]; else v->value.ull = e->value[field];
}
int nvmlDeviceGetFieldValues(void *device, int count, FieldValue *values) {
    PHYSICAL(nvmlDeviceGetFieldValues);
    for (int i = 0; i < count; i++) field_fill(e, &values[i]);
    LEAVE(OK);
}

/* ---- processes ---- */
typedef struct { unsigned pid; uint64_t memory; unsigned gi, ci; } ProcessInfo;
static int processes(int call, unsigned kind, void *device, unsigned *count, ProcessInfo *out) {
    Card *card = NULL; Entity *e = NULL;
    int code = enter(call, device, &card, &e);
    if (code) LEAVE(code);
    unsigned n = 0, room = out ? *count : 0;
    for (int i = 0; i < card->n_processes; i++) {
        const Process *p = &card->processes[i];
        if (!(p->kinds & kind)) continue;
        if (IS_INSTANCE && (p->gi != GET(gi) || p->ci != GET(ci))) continue;
        if (n < room) out[n] = (ProcessInfo){p->pid, p->memory, p->gi, p->ci};
        n++;
    }
    *count = n;
    LEAVE(n > room ? INSUFFICIENT_SIZE : OK);
}
#define PROCESSES(name, kind) \
    int name(void *device, unsigned *count, ProcessInfo *out) { return processes(CALL_##name, kind, device, count, out); }
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, 1)
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, 1)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, 2)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, 2)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2, 4)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3, 4)

static uint64_t stamp_of(const Use *u) {
    if (!u->relative) return (uint64_t)u->stamp;
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)((int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000 + u->stamp);
}
/* The size question answers a constant, as the driver does; "samples.silent": SUCCESS and 0 instead;
 * "samples.all": the caller's time stamp is ignored and history comes along. */
static unsigned sample_room(const Card *card) { return card->n_uses > 100 ? (unsigned)card->n_uses : 100; }

typedef struct { unsigned pid; uint64_t stamp; unsigned sm, mem, enc, dec; } Sample1;
int nvmlDeviceGetProcessUtilization(void *device, Sample1 *out, unsigned *count, uint64_t since) {
    PHYSICAL(nvmlDeviceGetProcessUtilization);
    if (MIG_ON) LEAVE(NOT_SUPPORTED);
    if (GET(samples_silent)) { *count = 0; LEAVE(OK); }
    if (!out || *count < sample_room(card)) { *count = sample_room(card); LEAVE(INSUFFICIENT_SIZE); }
    unsigned n = 0;
    for (int i = 0; i < card->n_uses; i++) {
        const Use *u = &card->uses[i];
        uint64_t stamp = stamp_of(u);
        if (stamp > since || GET(samples_all)) out[n++] = (Sample1){u->pid, stamp, u->sm, u->mem, u->enc, u->dec};
    }
    *count = n;
    LEAVE(n ? OK : NOT_FOUND);
}

typedef struct { uint64_t stamp; unsigned pid, sm, mem, enc, dec, jpg, ofa; } Sample2;
typedef struct { unsigned version, count; uint64_t since; Sample2 *out; } Samples2;
int nvmlDeviceGetProcessesUtilizationInfo(void *device, Samples2 *s) {
    PHYSICAL(nvmlDeviceGetProcessesUtilizationInfo);
    if (s->version != (sizeof *s | 1u << 24)) LEAVE(ARGUMENT_VERSION_MISMATCH);
    if (MIG_ON) LEAVE(NOT_SUPPORTED);
    if (GET(samples_silent)) { s->count = 0; LEAVE(OK); }
    if (!s->out || s->count < sample_room(card)) { s->count = sample_room(card); LEAVE(INSUFFICIENT_SIZE); }
    unsigned n = 0;
    for (int i = 0; i < card->n_uses; i++) {
        const Use *u = &card->uses[i];
        uint64_t stamp = stamp_of(u);
        if (stamp > s->since || GET(samples_all)) s->out[n++] = (Sample2){stamp, u->pid, u->sm, u->mem, u->enc, u->dec, 0, 0};
    }
    s->count = n;
    LEAVE(n ? OK : NOT_FOUND);
}

/* ---- MIG ---- */
int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending) {
    PHYSICAL(nvmlDeviceGetMigMode);
    NEED(mig_mode);
    *current = (unsigned)GET(mig_mode);
    *pending = e->has[F_mig_pending] ? (unsigned)GET(mig_pending) : *current;
    LEAVE(OK);
}
int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *count) {
    PHYSICAL(nvmlDeviceGetMaxMigDeviceCount);
    *count = MIG_ON ? (e->has[F_mig_max] ? (unsigned)GET(mig_max) : 7) : 0;
    LEAVE(OK);
}
int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned index, void **mig) {
    PHYSICAL(nvmlDeviceGetMigDeviceHandleByIndex);
    if (!e->has[F_mig_mode]) LEAVE(NOT_SUPPORTED);
    if (index >= MAX_MIG || !MIG_ON || !card->mig[index]) LEAVE(NOT_FOUND);
    *mig = handle(slot_of(device), (int)index);
    LEAVE(OK);
}
int nvmlDeviceIsMigDeviceHandle(void *device, unsigned *is) { ENTER(nvmlDeviceIsMigDeviceHandle); *is = IS_INSTANCE; LEAVE(OK); }
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *device, void **parent) {
    ENTER(nvmlDeviceGetDeviceHandleFromMigDeviceHandle);
    if (!IS_INSTANCE) LEAVE(INVALID_ARGUMENT);
    *parent = handle(slot_of(device), -1);
    LEAVE(OK);
}
#define INSTANCE_NUMBER(name, field) \
    int name(void *device, unsigned *out) { ENTER(name); if (!IS_INSTANCE) LEAVE(NOT_SUPPORTED); *out = (unsigned)GET(field); LEAVE(OK); }
INSTANCE_NUMBER(nvmlDeviceGetGpuInstanceId, gi)
INSTANCE_NUMBER(nvmlDeviceGetComputeInstanceId, ci)

/* A GPU instance has the handle of the first of its compute instances. */
int nvmlDeviceGetGpuInstanceById(void *device, unsigned id, void **instance) {
    PHYSICAL(nvmlDeviceGetGpuInstanceById);
    for (int i = 0; i < MAX_MIG; i++)
        if (card->mig[i] && card->mig[i]->value[F_gi] == id) { *instance = handle(slot_of(device), i); LEAVE(OK); }
    LEAVE(NOT_FOUND);
}
typedef struct { void *device; unsigned id, profile, start, size; } GpuInstanceInfo;
int nvmlGpuInstanceGetInfo(void *device, GpuInstanceInfo *info) {
    ENTER(nvmlGpuInstanceGetInfo);
    NEED(placement);
    *info = (GpuInstanceInfo){handle(slot_of(device), -1), (unsigned)GET(gi), (unsigned)GET(profile_id),
                              (unsigned)GET(placement), (unsigned)GET(gi_slices)};
    LEAVE(OK);
}

typedef struct { unsigned multiprocessors, copy, dec, enc, jpeg, ofa, gi_slices, ci_slices; uint64_t memory_mib; } Attributes;
int nvmlDeviceGetAttributes_v2(void *device, Attributes *a) {
    ENTER(nvmlDeviceGetAttributes_v2);
    if (!IS_INSTANCE) LEAVE(NOT_SUPPORTED);
    NEED(gi_slices);
    memset(a, 0, sizeof *a);
    a->multiprocessors = (unsigned)GET(multiprocessors);
    a->gi_slices = (unsigned)GET(gi_slices);
    a->ci_slices = (unsigned)GET(ci_slices);
    a->memory_mib = GET(memory_total) >> 20;
    LEAVE(OK);
}

/* ---- GPM: values of a GPU, or of the first compute instance of a GPU instance ----
 * "gpm = 1" makes a GPU support it. "gpm.metric.<id>" is a value, of a GPU or of a MIG index. "gpm.disturbs = 1": from
 * the first sample of a GPU instance on, memory queries of its instances fail, as on some drivers. A fault of a MIG
 * index is one of the samples of its GPU instance, too. */
typedef struct { int slot, mig; unsigned session; uint64_t taken; } GpmSample;
typedef struct { unsigned version, supported; } GpmSupport;
typedef struct { unsigned id; int code; double value; const char *short_name, *long_name, *unit; } GpmMetric;
typedef struct { unsigned version, count; GpmSample *first, *second; GpmMetric metrics[]; } GpmMetrics;
static uint64_t gpm_clock;

int nvmlGpmQueryDeviceSupport(void *device, GpmSupport *support) {
    PHYSICAL(nvmlGpmQueryDeviceSupport);
    if (support->version != 1) LEAVE(ARGUMENT_VERSION_MISMATCH);
    support->supported = (unsigned)GET(gpm);
    LEAVE(OK);
}
int nvmlGpmSampleAlloc(GpmSample **sample) {
    int code = enter_system(CALL_nvmlGpmSampleAlloc);
    if (code) LEAVE(code);
    *sample = calloc(1, sizeof **sample);
    gpm_samples++;
    LEAVE(OK);
}
int nvmlGpmSampleFree(GpmSample *sample) {
    pthread_mutex_lock(&lock);
    int code = trouble(CALL_nvmlGpmSampleFree, -1, -1);
    free(sample);
    gpm_samples--;
    LEAVE(code);
}
int nvmlGpmSampleGet(void *device, GpmSample *sample) {
    PHYSICAL(nvmlGpmSampleGet);
    if (!GET(gpm)) LEAVE(NOT_SUPPORTED);
    *sample = (GpmSample){slot_of(device), -1, session, ++gpm_clock};
    LEAVE(OK);
}
int nvmlGpmMigSampleGet(void *device, unsigned gi, GpmSample *sample) {
    PHYSICAL(nvmlGpmMigSampleGet);
    if (!GET(gpm)) LEAVE(NOT_SUPPORTED);
    for (int i = 0; i < MAX_MIG; i++)
        if (card->mig[i] && card->mig[i]->value[F_gi] == gi) {
            const Fault f = fault_of(CALL_nvmlGpmMigSampleGet, slot_of(device), i);
            if (f.has_code && f.code) LEAVE(f.code);
            if (GET(gpm_disturbs)) gpm_used[slot_of(device)] = 1;
            *sample = (GpmSample){slot_of(device), i, session, ++gpm_clock};
            LEAVE(OK);
        }
    LEAVE(INVALID_ARGUMENT);
}
int nvmlGpmMetricsGet(GpmMetrics *m) {
    pthread_mutex_lock(&lock);
    int slot = m->second ? m->second->slot : -1, mig = m->second ? m->second->mig : -1;
    int code = trouble(CALL_nvmlGpmMetricsGet, slot, mig);
    if (!up()) LEAVE(UNINITIALIZED);
    if (code) LEAVE(code);
    if (m->version != 1) LEAVE(ARGUMENT_VERSION_MISMATCH);
    const GpmSample *a = m->first, *b = m->second;
    /* two samples of one place, in order */
    if (!a || !b || a->session != session || b->session != session || a->slot != b->slot || a->mig != b->mig ||
        a->taken >= b->taken) LEAVE(INVALID_ARGUMENT);
    Card *card = world->cards[slot];
    const Entity *e = !card ? NULL : mig < 0 ? &card->self : card->mig[mig];
    for (unsigned i = 0; i < m->count; i++) {
        const unsigned id = m->metrics[i].id;
        const int has = e && e->gpm && id < MAX_GPM && e->gpm->has[id];
        m->metrics[i].code = has ? OK : NOT_SUPPORTED;
        m->metrics[i].value = has ? e->gpm->value[id] : 0.0;
    }
    LEAVE(OK);
}

/* ---- events: a set gives those that were written after it was made, once ---- */
typedef struct { unsigned session; int spoiled; uint64_t after; char registered[MAX_SLOTS]; } EventSet;
typedef struct { void *device; uint64_t type, data; unsigned gi, ci; } EventData;

int nvmlEventSetCreate(void **set) {
    int code = enter_system(CALL_nvmlEventSetCreate);
    if (code) LEAVE(code);
    EventSet *s = calloc(1, sizeof *s);
    s->session = session;
    for (int i = 0; i < world->n_events; i++) if (world->events[i].seq > s->after) s->after = world->events[i].seq;
    *set = s;
    LEAVE(OK);
}
int nvmlDeviceRegisterEvents(void *device, uint64_t types, EventSet *set) {
    Card *card = NULL; Entity *e = NULL;
    int code = enter(CALL_nvmlDeviceRegisterEvents, device, &card, &e);
    if (code == UNKNOWN) set->spoiled = 1; /* as the header says: such a set must be freed */
    if (code) LEAVE(code);
    if (IS_INSTANCE) LEAVE(NOT_SUPPORTED);
    if (set->session != session) LEAVE(INVALID_ARGUMENT);
    if (types & 8) set->registered[slot_of(device)] = 1;
    LEAVE(OK);
}
static const Event *next_event(const EventSet *set) {
    const Event *best = NULL;
    for (int i = 0; i < world->n_events; i++) {
        const Event *e = &world->events[i];
        int mine = e->slot >= 0 && e->slot < MAX_SLOTS && set->registered[e->slot];
        if (mine && e->seq > set->after && (!best || e->seq < best->seq)) best = e;
    }
    return best;
}
static int wait_events(EventSet *set, EventData *data, unsigned timeout_ms) {
    for (unsigned waited = 0;; waited += 10) {
        int code = enter_system(CALL_nvmlEventSetWait_v2);
        if (!code && set->session != session) code = INVALID_ARGUMENT;
        if (!code && set->spoiled) code = UNKNOWN;
        if (code) LEAVE(code);
        const Event *e = next_event(set);
        if (e) {
            set->after = e->seq;
            *data = (EventData){handle(e->slot, -1), e->type, e->xid, UINT32_MAX, UINT32_MAX};
            LEAVE(OK);
        }
        pthread_mutex_unlock(&lock);
        if (waited >= timeout_ms) return TIMEOUT;
        pause_ms(10);
    }
}
int nvmlEventSetWait_v2(EventSet *set, EventData *data, unsigned timeout_ms) {
    __atomic_add_fetch(&waiting, 1, __ATOMIC_SEQ_CST);
    int code = wait_events(set, data, timeout_ms);
    __atomic_sub_fetch(&waiting, 1, __ATOMIC_SEQ_CST);
    return code;
}
int nvmlEventSetFree(EventSet *set) {
    pthread_mutex_lock(&lock);
    int code = trouble(CALL_nvmlEventSetFree, -1, -1);
    free(set);
    LEAVE(code);
}

// Preloaded into bgpd: FRR's ringbuf_wipe (lib/ringbuf.c) clears the whole read buffer of a neighbour, 640 KiB, when a
// session starts or ends, and so touches every page of it. To forget what the ring holds is enough, as nothing reads
// beyond that: FRR's own ringbuf_reset does it. No field of the ring is touched here, so its layout does not matter.
//
// With ROCELAB_CHECK_RINGBUF set, as `rocelab up` runs `bgpd --version` once, the constructor uses pairs of rings in the
// same way, of which FRR wipes one and this file the other, and writes whether all that can be read of them is equal.
// There are no headers and no libraries, so that it compiles and loads everywhere: what it calls is in every process.

struct ringbuf;
typedef __SIZE_TYPE__ size_t;

extern void ringbuf_reset(struct ringbuf *ring);
extern char *getenv(const char *name);
extern int memcmp(const void *left, const void *right, size_t size);
extern size_t strlen(const char *text);
extern long write(int descriptor, const void *bytes, size_t size);
extern void *dlsym(void *handle, const char *name);

#define RTLD_DEFAULT ((void *)0)
#define RTLD_NEXT ((void *)-1)
#define SIZE 64

void ringbuf_wipe(struct ringbuf *ring)
{
	ringbuf_reset(ring);
}

static struct ringbuf *(*make)(size_t);
static void (*delete)(struct ringbuf *);
static size_t (*remaining)(struct ringbuf *);
static size_t (*space)(struct ringbuf *);
static size_t (*put)(struct ringbuf *, const void *, size_t);
static size_t (*get)(struct ringbuf *, void *, size_t);
static size_t (*peek)(struct ringbuf *, size_t, void *, size_t);
static void (*wipe)(struct ringbuf *);

static const struct {
	const char *name;
	void **function;
} needed[] = {
	{"ringbuf_new", (void **)&make},	{"ringbuf_del", (void **)&delete},
	{"ringbuf_remain", (void **)&remaining}, {"ringbuf_space", (void **)&space},
	{"ringbuf_put", (void **)&put},		{"ringbuf_get", (void **)&get},
	{"ringbuf_peek", (void **)&peek},
};

static int equal(struct ringbuf *cleared, struct ringbuf *reset)
{
	unsigned char left[SIZE] = {0}, right[SIZE] = {0};
	size_t peeked = peek(cleared, 1, left, SIZE);

	return remaining(cleared) == remaining(reset) && space(cleared) == space(reset) &&
	       peek(reset, 1, right, SIZE) == peeked && memcmp(left, right, SIZE) == 0;
}

// Whether two rings agree before and after a wipe, when `taken` of `filled` bytes had been read, and while they are then
// filled beyond their end and emptied.
static int agree(size_t filled, size_t taken)
{
	unsigned char bytes[SIZE], left[SIZE], right[SIZE];
	struct ringbuf *rings[2] = {make(SIZE), make(SIZE)};
	int same = 1;

	for (size_t at = 0; at < SIZE; at++)
		bytes[at] = (unsigned char)(at * 7 + filled + 1);
	for (int ring = 0; ring < 2; ring++) {
		put(rings[ring], bytes, filled);
		get(rings[ring], left, taken);
	}
	same &= equal(rings[0], rings[1]);
	wipe(rings[0]);
	ringbuf_wipe(rings[1]);
	same &= remaining(rings[1]) == 0 && space(rings[1]) == SIZE && equal(rings[0], rings[1]);
	for (size_t size = SIZE / 2; size <= SIZE; size += SIZE / 4) {
		same &= put(rings[0], bytes, size) == put(rings[1], bytes, size);
		same &= equal(rings[0], rings[1]);
		same &= get(rings[0], left, size) == size && get(rings[1], right, size) == size;
		same &= memcmp(left, right, size) == 0 && memcmp(left, bytes, size) == 0;
	}
	delete (rings[0]);
	delete (rings[1]);
	return same;
}

static int say(const char *text)
{
	return write(2, text, strlen(text)) > 0;
}

__attribute__((constructor)) static void check(void)
{
	if (!getenv("ROCELAB_CHECK_RINGBUF"))
		return;
	say("rocelab: ");
	for (size_t at = 0; at < sizeof(needed) / sizeof(needed[0]); at++) {
		*needed[at].function = dlsym(RTLD_DEFAULT, needed[at].name);
		if (!*needed[at].function) {
			say("there is no ");
			say(needed[at].name);
			say("\n");
			return;
		}
	}
	wipe = (void (*)(struct ringbuf *))dlsym(RTLD_NEXT, "ringbuf_wipe");
	if (!wipe || !dlsym(RTLD_DEFAULT, "ringbuf_reset")) {
		say(wipe ? "there is no ringbuf_reset\n" : "there is no ringbuf_wipe\n");
		return;
	}
	for (size_t filled = 0; filled <= SIZE; filled += SIZE / 4)
		for (size_t taken = 0; taken <= filled; taken += SIZE / 8)
			if (!agree(filled, taken)) {
				say("a ring that is reset differs from one that is wiped\n");
				return;
			}
	say("rings agree\n");
}

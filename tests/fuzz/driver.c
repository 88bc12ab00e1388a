/* Runs a fuzz target without libFuzzer: mutations of the given seeds, with no feedback about the code that they reach.
 *
 *     TARGET [-runs=N] [-max_total_time=SECONDS] [-seed=N] [-artifact_prefix=PREFIX] [FILE]...
 *
 * The options are libFuzzer's. The same seed and files give the same inputs. An input that fails is written to
 * PREFIXcrash-input; that file alone with -runs=0 runs it again.
 */
#include "fuzz.h"

#include <sanitizer/common_interface_defs.h>
#include <time.h>

#define LARGEST 4096 /* bytes of an input */

typedef struct {
    uint8_t data[LARGEST];
    size_t size;
} sample;

static uint64_t state;
static sample current;
static const char *prefix = "";

/* If the two are separate libraries, only AddressSanitizer calls keep_input(): it sees the abort of every failure. */
const char *__asan_default_options(void) { return "handle_abort=1"; }
const char *__ubsan_default_options(void) { return "abort_on_error=1:print_stacktrace=1"; }

/* splitmix64 (Steele, Lea and Flood, 2014) */
static uint64_t draw(void)
{
    uint64_t mixed = state += UINT64_C(0x9E3779B97F4A7C15);

    mixed = (mixed ^ mixed >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94D049BB133111EB);
    return mixed ^ mixed >> 31;
}

static size_t below(size_t limit) { return (size_t)(draw() % limit); }

static void keep_input(void)
{
    char path[1024];
    FILE *file;

    snprintf(path, sizeof path, "%scrash-input", prefix);
    file = fopen(path, "wb");
    if (file == NULL)
        return;
    fwrite(current.data, 1, current.size, file);
    fclose(file);
    fprintf(stderr, "the input is in %s\n", path);
}

static void run(void)
{
    /* A copy of the exact size, so that AddressSanitizer sees reads past it. */
    uint8_t *data = malloc(current.size ? current.size : 1);

    REQUIRE(data != NULL);
    memcpy(data, current.data, current.size);
    LLVMFuzzerTestOneInput(data, current.size);
    free(data);
}

static void mutate(const sample *other)
{
    static const uint8_t telling[] = {0, 1, 3, 20, 24, 25, 0x40, 0x48, 0x7f, 0x80, 0xfe, 0xff, '.', ':', '%', '0'};
    size_t at = current.size ? below(current.size) : 0, from, count;

    switch (below(6)) {
    case 0: /* a bit */
        if (current.size)
            current.data[at] ^= (uint8_t)(1u << below(8));
        break;
    case 1: /* a byte with a meaning */
        if (current.size)
            current.data[at] = telling[below(sizeof telling)];
        break;
    case 2: /* shorter */
        current.size = at;
        break;
    case 3: /* longer, by noise */
        for (count = below(64); count > 0 && current.size < LARGEST; count--)
            current.data[current.size++] = (uint8_t)draw();
        break;
    case 4: /* a part of another input, at its place or elsewhere */
        if (other->size) {
            from = below(other->size);
            count = below(other->size - from) + 1;
            at = below(2) ? from : below(current.size + 1);
            if (at + count > LARGEST)
                break;
            if (at > current.size)
                memset(current.data + current.size, 0, at - current.size);
            memcpy(current.data + at, other->data + from, count);
            current.size = at + count > current.size ? at + count : current.size;
        }
        break;
    default: /* a part left out */
        count = below(current.size - at + 1);
        memmove(current.data + at, current.data + at + count, current.size - at - count);
        current.size -= count;
    }
}

static size_t read_seeds(char **paths, int count, sample *seeds)
{
    for (int index = 0; index < count; index++) {
        FILE *file = fopen(paths[index], "rb");

        if (file == NULL) {
            perror(paths[index]);
            exit(2);
        }
        seeds[index].size = fread(seeds[index].data, 1, LARGEST, file);
        fclose(file);
        current = seeds[index];
        run();
    }
    return (size_t)count;
}

int main(int argc, char **argv)
{
    long long runs = -1, done = 0;
    long seconds = 0;
    int first = 1;
    size_t seeds_count;
    sample *seeds;
    time_t end;

    for (; first < argc && argv[first][0] == '-'; first++) {
        if (sscanf(argv[first], "-runs=%lld", &runs) == 1 || sscanf(argv[first], "-max_total_time=%ld", &seconds) == 1
            || sscanf(argv[first], "-seed=%llu", (unsigned long long *)&state) == 1)
            continue;
        if (strncmp(argv[first], "-artifact_prefix=", 17) != 0) {
            fprintf(stderr, "%s: no such option: %s\n", argv[0], argv[first]);
            return 2;
        }
        prefix = argv[first] + 17;
    }
    __sanitizer_set_death_callback(keep_input);
    seeds = calloc((size_t)(argc - first) + 1, sizeof *seeds); /* the last one is empty */
    REQUIRE(seeds != NULL);
    seeds_count = read_seeds(argv + first, argc - first, seeds) + 1;
    end = time(NULL) + seconds;
    while ((runs < 0 || done < runs) && (seconds == 0 || time(NULL) < end)) {
        current = seeds[below(seeds_count)];
        for (size_t count = below(8) + 1; count > 0; count--)
            mutate(&seeds[below(seeds_count)]);
        run();
        done++;
    }
    free(seeds);
    fprintf(stderr, "Done %lld runs\n", done);
    return 0;
}

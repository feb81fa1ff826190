/* Catch: a little game for the Nintendo Entertainment System. Apples fall, a basket catches them.
 *
 *   cl65 -t nes -O -o catch.nes catch.c        (cc65)
 *
 * Start begins a game, left and right move the basket. 30 apples fill it and win; 5 apples on the
 * ground lose. Apples fall faster with every sixth one caught, and some drift and bounce off the
 * walls. Start begins anew.
 *
 * Everything there is to know about a game lies in the bytes of `struct game` at $0500. Apples are
 * drawn from its seed alone, which counts up while no game is played: the same seed and the same
 * buttons play the same game, and whoever writes the seed chooses the game.
 */

#include <nes.h>
#include <string.h>
#include <time.h>

enum { TITLE, PLAYING, LOST, WON };

struct game {
    unsigned char phase;      /* $0500  one of the above */
    unsigned char basket_x;   /* $0501  left edge, in pixels */
    unsigned char apple_x;    /* $0502  left edge */
    unsigned char apple_y;    /* $0503  upper edge; 0 while no apple falls */
    signed char drift;        /* $0504  pixels a frame sideways: -1, 0 or 1 */
    unsigned char speed;      /* $0505  downwards, in sixteenths of a pixel a frame */
    unsigned char score;      /* $0506  apples caught */
    unsigned char misses;     /* $0507  apples lost */
    unsigned char frame;      /* $0508  counts every frame, whatever the phase */
    unsigned int seed;        /* $0509  of the apples to come, low byte first; 0 is taken as 1 */
    unsigned char pause;      /* $050B  frames until the next apple */
    unsigned char fraction;   /* $050C  sixteenths of a pixel below apple_y */
};

struct sprite {
    unsigned char y, tile, attributes, x;
};

/* Below the C stack, which cc65 lets grow down from $0800. */
#define GAME ((struct game*) 0x0500)
#define SPRITES ((struct sprite*) 0x0600)
#define SPRITE_PAGE 0x06

#define GOAL 30
#define MOST_MISSES 5

#define LEFT_WALL 8 /* pixels */
#define RIGHT_WALL 248
#define APPLE_WIDTH 8
#define BASKET_WIDTH 24
#define BASKET_STEP 3
#define BASKET_Y 200
#define GROUND_Y 208
#define FIRST_Y 32
#define FIRST_PAUSE 48
#define NEXT_PAUSE 16
#define FIRST_SPEED 24
#define FASTER 4
#define CATCHES_PER_LEVEL 6

#define NMI_AND_LIBRARY_FONT 0x90 /* an interrupt each frame; background tiles from $1000 */
#define SHOW_ALL 0x1E
#define FLIPPED 0x40
#define OFF_SCREEN 0xF0
#define GROUND_ROW (GROUND_Y / 8)
#define CHEQUERED 1 /* a tile of the font */

enum { NOTHING, APPLE, BASKET_SIDE, BASKET_MIDDLE };
enum { APPLE_COLORS, BASKET_COLORS };

/* Sprite tiles: two planes of eight rows each. They fill the first half of the tile memory, so that
   the library's font, whose tiles are in the order of ASCII, lies in the second. */
#pragma rodata-name (push, "CHARS")
const unsigned char tiles[256][16] = {
    {0},
    {0x00, 0x10, 0x6C, 0xFE, 0xFE, 0xFE, 0x7C, 0x28, 0x0C, 0x10, 0x00, 0x40, 0x40, 0x00, 0x00, 0x00},
    {0xFF, 0x80, 0xFF, 0x4A, 0x7F, 0x25, 0x3F, 0x1F, 0xFF, 0xFF, 0x00, 0x35, 0x00, 0x1A, 0x00, 0x1F},
    {0xFF, 0x00, 0xFF, 0xAA, 0xFF, 0x55, 0xFF, 0xFF, 0xFF, 0xFF, 0x00, 0x55, 0x00, 0xAA, 0x00, 0xFF},
};
#pragma rodata-name (pop)

/* The sky is the first colour of all; words are white, the ground green. */
static const unsigned char palette[32] = {
    0x21, 0x21, 0x21, 0x30, 0x21, 0x19, 0x19, 0x19, 0x21, 0x21, 0x21, 0x30, 0x21, 0x21, 0x21, 0x30,
    0x21, 0x16, 0x2A, 0x30, 0x21, 0x27, 0x37, 0x17, 0x21, 0x21, 0x21, 0x30, 0x21, 0x21, 0x21, 0x30,
};

/* Screen ---------------------------------------------------------------------------------------- */

static void at(unsigned char row, unsigned char column)
{
    PPU.vram.address = 0x20 | row >> 3;
    PPU.vram.address = row << 5 | column;
}

static void print(unsigned char row, unsigned char column, const char* text)
{
    at(row, column);
    while (*text) {
        PPU.vram.data = *text++;
    }
}

static void fill(unsigned char tile, unsigned int count)
{
    while (count--) {
        PPU.vram.data = tile;
    }
}

/* Video memory may be written while nothing is shown. */
static void screen_off(void)
{
    waitvsync();
    PPU.control = 0;
    PPU.mask = 0;
}

static void screen_on(void)
{
    waitvsync();
    PPU.scroll = 0;
    PPU.scroll = 0;
    PPU.control = NMI_AND_LIBRARY_FONT;
    PPU.mask = SHOW_ALL;
}

static void draw_field(void)
{
    unsigned char place;

    at(0, 0);
    fill(' ', GROUND_ROW * 32);
    fill(CHEQUERED, (30 - GROUND_ROW) * 32);
    fill(0x00, 48); /* which colours: those of the words, and from row 26 on the ground's */
    fill(0x50, 8);
    fill(0x55, 8);
    for (place = 3; place < GROUND_ROW; ++place) {
        print(place, 0, "|");
        print(place, 31, "|");
    }
    print(1, 2, "SCORE");
    print(1, 21, "MISSES");
    PPU.vram.address = 0x3F;
    PPU.vram.address = 0x00;
    for (place = 0; place < sizeof palette; ++place) {
        PPU.vram.data = palette[place];
    }
}

static void show_words(const char* first, const char* second)
{
    screen_off();
    print(11, 10, first);
    print(13, 10, second);
    screen_on();
}

static unsigned char score_tens, score_ones;

static void put_sprite(unsigned char number, unsigned char x, unsigned char y, unsigned char tile,
                       unsigned char attributes)
{
    struct sprite* sprite = SPRITES + number;

    sprite->x = x;
    sprite->y = y - 1; /* a sprite is drawn a line below its place */
    sprite->tile = tile;
    sprite->attributes = attributes;
}

/* Work out what is to be shown: a division takes too long for the time between two pictures. */
static void prepare_frame(void)
{
    unsigned char x = GAME->basket_x;

    score_tens = '0' + GAME->score / 10;
    score_ones = '0' + GAME->score % 10;
    put_sprite(0, x, BASKET_Y, BASKET_SIDE, BASKET_COLORS);
    put_sprite(1, x + 8, BASKET_Y, BASKET_MIDDLE, BASKET_COLORS);
    put_sprite(2, x + 16, BASKET_Y, BASKET_SIDE, BASKET_COLORS | FLIPPED);
    put_sprite(3, GAME->apple_x, GAME->apple_y ? GAME->apple_y : OFF_SCREEN, APPLE, APPLE_COLORS);
}

/* Show what was prepared, in the short time while the beam returns to the top. */
static void show_frame(void)
{
    clock_t now = clock();

    while (clock() == now) {
    }
    SPRITE_DMA = SPRITE_PAGE;
    at(1, 8);
    PPU.vram.data = score_tens;
    PPU.vram.data = score_ones;
    at(1, 28);
    PPU.vram.data = '0' + GAME->misses;
    PPU.scroll = 0;
    PPU.scroll = 0;
    PPU.control = NMI_AND_LIBRARY_FONT;
}

static void beep(unsigned char period)
{
    APU.pulse[0].control = 0x84; /* fades by itself */
    APU.pulse[0].ramp = 0x08;
    APU.pulse[0].period_low = period;
    APU.pulse[0].len_period_high = 0x08;
}

/* Game ------------------------------------------------------------------------------------------ */

/* One bit per button: JOY_LEFT_MASK and so on. */
static unsigned char read_pad(void)
{
    unsigned char count, buttons = 0;

    JOYPAD[0] = 1;
    JOYPAD[0] = 0;
    for (count = 8; count; --count) {
        buttons = buttons >> 1 | (JOYPAD[0] & 1) << 7;
    }
    return buttons;
}

/* Xorshift: visits all 65,535 seeds before it repeats one. */
static unsigned char draw(void)
{
    unsigned int seed = GAME->seed;

    if (seed == 0) {
        seed = 1;
    }
    seed ^= seed << 7;
    seed ^= seed >> 9;
    seed ^= seed << 8;
    GAME->seed = seed;
    return (unsigned char) seed;
}

static void reset(void)
{
    GAME->score = 0;
    GAME->misses = 0;
    GAME->basket_x = (LEFT_WALL + RIGHT_WALL - BASKET_WIDTH) / 2;
    GAME->apple_y = 0;
    GAME->drift = 0;
    GAME->speed = FIRST_SPEED;
    GAME->pause = FIRST_PAUSE;
}

static void begin(void)
{
    reset();
    GAME->phase = PLAYING;
    show_words("           ", "           ");
}

static void end(unsigned char phase, const char* words)
{
    GAME->phase = phase;
    show_words(words, "PRESS START");
}

static void move_basket(unsigned char buttons)
{
    if (buttons & JOY_LEFT_MASK) {
        if (GAME->basket_x >= LEFT_WALL + BASKET_STEP) {
            GAME->basket_x -= BASKET_STEP;
        } else {
            GAME->basket_x = LEFT_WALL;
        }
    } else if (buttons & JOY_RIGHT_MASK) {
        if (GAME->basket_x <= RIGHT_WALL - BASKET_WIDTH - BASKET_STEP) {
            GAME->basket_x += BASKET_STEP;
        } else {
            GAME->basket_x = RIGHT_WALL - BASKET_WIDTH;
        }
    }
}

static void drop_apple(void)
{
    unsigned char x;

    do {
        x = draw();
    } while (x < LEFT_WALL || x > RIGHT_WALL - APPLE_WIDTH);
    GAME->apple_x = x;
    GAME->apple_y = FIRST_Y;
    GAME->fraction = 0;
    switch (draw() & 3) {
        case 0:  GAME->drift = -1; break;
        case 1:  GAME->drift = 1;  break;
        default: GAME->drift = 0;
    }
    GAME->speed = FIRST_SPEED + FASTER * (GAME->score / CATCHES_PER_LEVEL);
}

static void move_apple(void)
{
    if (GAME->apple_x <= LEFT_WALL && GAME->drift < 0) {
        GAME->drift = 1;
    } else if (GAME->apple_x >= RIGHT_WALL - APPLE_WIDTH && GAME->drift > 0) {
        GAME->drift = -1;
    }
    GAME->apple_x += GAME->drift;
    GAME->fraction += GAME->speed;
    GAME->apple_y += GAME->fraction >> 4;
    GAME->fraction &= 15;
}

static unsigned char in_basket(void)
{
    return GAME->apple_y + APPLE_WIDTH > BASKET_Y
        && GAME->apple_x + APPLE_WIDTH > GAME->basket_x
        && GAME->apple_x < GAME->basket_x + BASKET_WIDTH;
}

static void take_away_apple(void)
{
    GAME->apple_y = 0;
    GAME->drift = 0;
    GAME->pause = NEXT_PAUSE;
}

static void play(unsigned char buttons)
{
    move_basket(buttons);
    if (GAME->apple_y == 0) {
        if (--GAME->pause == 0) {
            drop_apple();
        }
        return;
    }
    move_apple();
    if (in_basket()) {
        take_away_apple();
        beep(0x60);
        if (++GAME->score == GOAL) {
            end(WON, " YOU WIN!  ");
        }
    } else if (GAME->apple_y >= GROUND_Y - APPLE_WIDTH) {
        take_away_apple();
        beep(0xF0);
        if (++GAME->misses == MOST_MISSES) {
            end(LOST, " GAME OVER ");
        }
    }
}

void main(void)
{
    unsigned char buttons, number;

    waitvsync(); /* the video chip needs two frames to wake up */
    for (number = 0; number < 64; ++number) {
        put_sprite(number, 0, OFF_SCREEN, NOTHING, 0);
    }
    memset(GAME, 0, sizeof *GAME);
    reset();
    screen_off();
    draw_field();
    APU.status = 1;
    show_words("  CATCH !  ", "PRESS START");
    prepare_frame();
    for (;;) {
        show_frame();
        ++GAME->frame;
        buttons = read_pad();
        if (GAME->phase == PLAYING) {
            play(buttons);
        } else {
            ++GAME->seed;
            if (buttons & JOY_START_MASK) {
                begin();
            }
        }
        prepare_frame();
    }
}

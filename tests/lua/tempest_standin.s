; A stand-in for Tempest's program, our own, for the same hardware: attract mode, coin, start, level
; selection, lives that end after a while, game over. It keeps what it does where the real one does.

STATE     = $00
TICK      = $03
COUNTDOWN = $04
MODE      = $05
CREDITS   = $06
SCORE     = $40
LEVEL1    = $46
LIVES     = $48
BUTTONS   = $4d
SPINNER   = $50
PLACE     = $51
LEVEL     = $9f
HIGHEST   = $0127
PULSE     = $0148
LANE      = $0200
OTHER     = $0201
DEPTH     = $0202
LEFT      = $0700               ; ticks until something ends
HELD      = $0701               ; inputs at this tick: coin 1, zap 8, fire $10, start $20
BEFORE    = $0702               ; and at the one before
FRESH     = $0703               ; pressed since

COINS     = $0c00
WATCHDOG  = $5000
POTS      = $60d8
POTGO     = $60db
SKCTL     = $60df
PLAYER1   = $60e0               ; whose buttons are read

PLAY      = $04
PAUSE     = $0a
HIGHSCORE = $12
SELECT    = $16

        .segment "CODE"

reset:  sei
        cld
        ldx #$ff
        txs
        lda #0
        tax
clear:  sta $00,x
        sta $0100,x
        sta $0200,x
        sta $0300,x
        sta $0700,x
        inx
        bne clear
        sta PLAYER1
        lda #3
        sta SKCTL
        lda #PAUSE
        sta STATE

main:   jsr wait
        jsr inputs
        jsr step
        inc TICK
        jmp main

; About a 27th of a second.
wait:   ldx #43
outer:  sta WATCHDOG
        ldy #0
inner:  dey
        bne inner
        dex
        bne outer
        rts

; Buttons are read as paddles: those held take long to be measured.
inputs: sta POTGO
        ldx #60
settle: dex
        bne settle
        lda POTS
        and #$38
        sta HELD
        and #$18
        sta BUTTONS
        lda COINS
        and #$04
        bne no_coin
        inc HELD
no_coin:
        lda BEFORE
        eor #$ff
        and HELD
        sta FRESH
        lda HELD
        sta BEFORE
        lda FRESH
        and #1
        beq done
        inc CREDITS
done:   rts

step:   lda MODE
        bpl attract
        lda STATE
        cmp #SELECT
        beq select
        cmp #PLAY
        bne not_play
        jmp play
not_play:
        cmp #PAUSE
        bne done
        jmp pause

attract:
        lda FRESH
        and #$20
        beq done
        lda CREDITS
        beq done
        dec CREDITS
        lda #$c0
        sta MODE
        lda #SELECT
        sta STATE
        lda #$10
        sta COUNTDOWN
        lda #2
        sta LIVES
        lda #4
        sta HIGHEST
        lda #0
        sta LANE
        sta PLACE
        sta SPINNER
        rts

; An eighth of a turn of 256 is one level; the carry decides.
select: lda SPINNER
        asl
        asl
        asl
        clc
        adc PLACE
        sta PLACE
        lda LANE
        bit SPINNER
        bmi lower
        adc #0
        jmp limit
lower:  adc #$ff
limit:  tax
        bpl positive
        ldx #0
positive:
        cpx HIGHEST
        bcc within
        ldx HIGHEST
within: stx LANE
        lda #0
        sta SPINNER
        lda FRESH
        and #$10
        beq chosen
        lda levels,x
        sta LEVEL
        sta LEVEL1
        jmp newlife
chosen: rts

newlife:
        lda #PAUSE
        sta STATE
        lda #20
        sta LEFT
        lda #14
        sta LANE
        lda #15
        sta OTHER
        lda #$e0
        sta PLACE
        sta PULSE
        lda #$10
        sta DEPTH
        lda #0
        sta SPINNER
        rts

pause:  dec LEFT
        bne chosen
        lda #PLAY
        sta STATE
        lda #60
        sta LEFT
        rts

play:   dec LEFT
        bit OTHER
        bmi dead
        lda PLACE
        sec
        sbc SPINNER
        sta PLACE
        lsr
        lsr
        lsr
        lsr
        sta LANE
        clc
        adc #1
        and #15
        sta OTHER
        lda #0
        sta SPINNER
        lda BUTTONS             ; a point for each tick with fire, ten with zap
        and #$10
        beq no_fire
        lda #$01
        jsr earn
no_fire:
        lda BUTTONS
        and #$08
        beq no_zap
        lda #$10
        jsr earn
no_zap: lda LEFT
        bne alive
        lda #$81
        sta OTHER
        lda #10
        sta LEFT
alive:  rts

dead:   lda LEFT
        bne alive
        dec LIVES
        bne again
        lda #HIGHSCORE
        sta STATE
        rts
again:  jmp newlife

earn:   sed
        clc
        adc SCORE
        sta SCORE
        lda SCORE+1
        adc #0
        sta SCORE+1
        cld
        rts

levels: .byte 0, 2, 4, 6, 8, 10, 12, 14, 16, 19, 21, 23, 25, 27, 30, 32, 35, 39, 43, 46, 48, 51, 55
        .byte 59, 62, 64, 72, 80

        .segment "VECTORS"
        .word reset, reset, reset

/* Loops that hold known values in every register and check them each turn, without a system call.
 *
 *   long spin_neon(uint64_t shared[9], long turns)
 *   long spin_sve(the same)
 *
 * Returns how many checks found another value.  A thread that is borrowed and given back in the middle must
 * not see it.  shared[0] not 0 ends the loop; it counts turns in [1], what was wrong in this call in [2], and
 * leaves in [8] which it was: x0-x30, 100 and 200 + n for the halves of v0-v31, 300 + n for z0-z31,
 * 400 + n for p0-p15, 500 first-fault register, 600 flags, 601 fpcr, 602 fpsr.
 */

        .macro  save
        stp     x29, x30, [sp, #-160]!
        stp     x19, x20, [sp, #16]
        stp     x21, x22, [sp, #32]
        stp     x23, x24, [sp, #48]
        stp     x25, x26, [sp, #64]
        stp     x27, x28, [sp, #80]
        stp     d8, d9, [sp, #96]
        stp     d10, d11, [sp, #112]
        stp     d12, d13, [sp, #128]
        stp     d14, d15, [sp, #144]
        .endm

        .macro  restore
        msr     fpcr, xzr
        ldp     x19, x20, [sp, #16]
        ldp     x21, x22, [sp, #32]
        ldp     x23, x24, [sp, #48]
        ldp     x25, x26, [sp, #64]
        ldp     x27, x28, [sp, #80]
        ldp     d8, d9, [sp, #96]
        ldp     d10, d11, [sp, #112]
        ldp     d12, d13, [sp, #128]
        ldp     d14, d15, [sp, #144]
        ldp     x29, x30, [sp], #160
        .endm

/* Count a difference that the flags show, and keep the number of what was different. */
        .macro  differs number
        cinc    x2, x2, ne
        mov     x3, #\number
        csel    x6, x3, x6, ne
        .endm

/* General registers: x0 shared, x1 turns left, x2 wrong, x3-x5 scratch, x6 the number of what was wrong last;
 * the rest hold 0x5a00 + number. */
        .macro  fill_general
        mov     x6, #0
        .irp    n, 7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30
        mov     x\n, #0x5a00 + \n
        .endr
        mov     x3, #0xc00000           /* round towards zero */
        msr     fpcr, x3
        mov     x3, #0x15               /* three of the five kinds of inexact results have been seen */
        msr     fpsr, x3
        .endm

        .macro  check_general
        .irp    n, 7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30
        mov     x3, #0x5a00 + \n
        cmp     x\n, x3
        differs \n
        .endr
        mrs     x4, fpcr
        mov     x3, #0xc00000
        cmp     x4, x3
        differs 601
        mrs     x4, fpsr
        cmp     x4, #0x15
        differs 602
        .endm

/* Flags live through a while in which nothing changes them.  In a page that guards its branch targets a thread
 * stopped right after `br` is one that must find `bti`, and says so in a bit of its state. */
        .macro  wait_with_flags
        mov     x4, #0xa0000000
        msr     nzcv, x4
        mov     x5, #64
1:      adr     x3, 2f
        br      x3
2:      bti     j
        sub     x5, x5, #1
        cbnz    x5, 1b
        mrs     x3, nzcv
        cmp     x3, x4
        differs 600
        .endm

        .macro  tell
        ldr     x3, [x0, #8]
        add     x3, x3, #1
        str     x3, [x0, #8]
        str     x2, [x0, #16]
        cbz     x2, 2f
        str     x6, [x0, #64]
2:
        sub     x1, x1, #1
        cbz     x1, 9f
        ldr     x3, [x0]
        cbz     x3, 8b
9:      mov     x0, x2
        .endm

        .text
        .global spin_neon
        .type   spin_neon, %function
spin_neon:
        bti     c
        save
        mov     x2, #0
        fill_general
        .irp    n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
        mov     x3, #0x7100 + \n
        mov     v\n\().d[0], x3
        mov     x3, #0x7200 + \n
        mov     v\n\().d[1], x3
        .endr
8:      wait_with_flags
        check_general
        .irp    n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
        mov     x4, v\n\().d[0]
        mov     x3, #0x7100 + \n
        cmp     x4, x3
        differs 100 + \n
        mov     x4, v\n\().d[1]
        mov     x3, #0x7200 + \n
        cmp     x4, x3
        differs 200 + \n
        .endr
        tell
        restore
        ret
        .size   spin_neon, . - spin_neon

/* z31 and p0-p2 are scratch; z0-z30, p3-p15 and the first-fault register hold values over all lengths. */
        .global spin_sve
        .type   spin_sve, %function
spin_sve:
        bti     c
        save
        mov     x2, #0
        fill_general
        ptrue   p0.b
        mov     x3, #37
        whilelo p1.b, xzr, x3
        setffr
        wrffr   p1.b
        .irp    n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30
        mov     x3, #0x7300 + \n
        index   z\n\().d, x3, #3
        .endr
        .irp    n, 3,4,5,6,7,8,9,10,11,12,13,14,15
        mov     x3, #1 + 4 * \n
        whilelo p\n\().b, xzr, x3
        .endr
8:      wait_with_flags
        check_general
        ptrue   p0.b
        .irp    n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30
        mov     x3, #0x7300 + \n
        index   z31.d, x3, #3
        cmpne   p1.d, p0/z, z\n\().d, z31.d
        differs 300 + \n
        .endr
        .irp    n, 3,4,5,6,7,8,9,10,11,12,13,14,15
        mov     x3, #1 + 4 * \n
        whilelo p1.b, xzr, x3
        eors    p1.b, p0/z, p1.b, p\n\().b
        differs 400 + \n
        .endr
        rdffr   p1.b
        mov     x3, #37
        whilelo p2.b, xzr, x3
        eors    p1.b, p0/z, p1.b, p2.b
        differs 500
        tell
        restore
        ret
        .size   spin_sve, . - spin_sve

        .global spin_end
spin_end:

/* SPDX-License-Identifier: MIT
 *
 * exp_step.inc.c - exp(d) for d <= 88 (f64: 709): exactly 0 for -infinity and below the normal numbers, exactly 1 for 0, NaN for
 * NaN of any payload.  Included by forward.inc.c.
 *
 *      n = round(d log2 e);   r = d - n ln2;   exp(d) = 2^n p(r)
 *
 * Adding 1.5 * 2^(mantissa bits) rounds to an integer and leaves it in the lowest bits; with the exponent's bias in the same
 * constant those bits are the exponent of 2^n.  The clamp is where n + bias = 0, so the power, and with it the result, is exactly 0
 * there. Where d is NaN so is p, whatever the power.
 *
 * f32: p of degree 5 with p(0) = 1, minimax in the relative error, then adjusted in the last places for the least error of its
 * evaluation in f32.  Error: 2.0 units in the last place for d > -4, and 0.05 |d| more below that from the rounding of ln2
 * (measured over [-87, 0]); a weight that is e^d times the largest does not feel it. f64: degree 11 in base 2, even and odd powers
 * apart; 1.2 units in the last place, and 0.13 |d| more from the rounding of log2 e.
 */
#ifdef VF_LANES

/* Adds n * constant without losing the low bits that cancel: fused, or in two parts of which the first product is exact. */
VF_INLINE vf exp_remainder(vf d, vf n)
{
#if REAL_BITS == 32 && VF_FUSED
    return vf_fma(n, vf_set(-0x1.62e43p-1f), d);
#elif REAL_BITS == 32
    return vf_sub(vf_sub(d, vf_mul(n, vf_set(0.693359375f))), vf_mul(n, vf_set(-2.12194440e-4f)));
#elif VF_FUSED
    return vf_fma(d, vf_set(0x1.71547652b82fep+0), vf_sub(vf_zero(), n));
#else
    vf r = vf_sub(vf_sub(d, vf_mul(n, vf_set(0x1.62e42feep-1))), vf_mul(n, vf_set(0x1.a39ef35793c76p-33)));
    return vf_mul(r, vf_set(0x1.71547652b82fep+0));
#endif
}

/* q with p(r) = 1 + r q(r). */
VF_INLINE vf exp_polynomial(vf r)
{
#if REAL_BITS == 32
    vf p = vf_fma(r, vf_set(0.00827663578f), vf_set(0.0418903716f));
    p = vf_fma(p, r, vf_set(0.166677803f));
    p = vf_fma(p, r, vf_set(0.499992251f));
    return vf_fma(p, r, vf_set(0.999999702f));
#else
    static const double c[12] = {1.0,
                                 0.6931471805599453,
                                 0.24022650695910097,
                                 0.0555041086648216,
                                 0.009618129107606888,
                                 0.0013333558146416936,
                                 0.0001540353044173605,
                                 1.525273382983612e-05,
                                 1.321544258792169e-06,
                                 1.0178062445845774e-07,
                                 7.072585949269223e-09,
                                 4.4549605981865186e-10};
    vf r2 = vf_mul(r, r), p = vf_fma(vf_set(c[11]), r2, vf_fma(vf_set(c[10]), r, vf_set(c[9])));
    p = vf_fma(p, r2, vf_fma(vf_set(c[8]), r, vf_set(c[7])));
    p = vf_fma(p, r2, vf_fma(vf_set(c[6]), r, vf_set(c[5])));
    p = vf_fma(p, r2, vf_fma(vf_set(c[4]), r, vf_set(c[3])));
    return vf_fma(p, r2, vf_fma(vf_set(c[2]), r, vf_set(c[1])));
#endif
}

/* exp(d) = power * (1 + r q). */
VF_INLINE void exp_parts(vf d, vf *power, vf *r, vf *q)
{
#if REAL_BITS == 32
    const vf magic = vf_set(0x1.8p23f + 127), clamp = vf_set(-88.0296919f), log2_e = vf_set(0x1.715476p+0f);
#else
    const vf magic = vf_set(0x1.8p52 + 1023), clamp = vf_set(-709.08956571282404), log2_e = vf_set(0x1.71547652b82fep+0);
#endif
    d = vf_max(clamp, d);
    vf t = vf_fma(d, log2_e, magic);
    *r = exp_remainder(d, vf_sub(t, magic));
    *q = exp_polynomial(*r);
    *power = vf_power(t);
}

VF_INLINE vf vf_exp(vf d)
{
    vf power, r, q;
    exp_parts(d, &power, &r, &q);
    return vf_mul(vf_fma(q, r, vf_set(1)), power);
}

#endif

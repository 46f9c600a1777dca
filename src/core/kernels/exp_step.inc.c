/* SPDX-License-Identifier: MIT
 *
 * exp_step.inc.c - exp(d) for d <= 88 (f64: 709): exactly 0 for -infinity, exactly 1 for 0, NaN for NaN of any payload.  Included
 * by forward.inc.c.
 *
 *      n = d log2 e, rounded to eighths;   r = d - n ln2;   exp(d) = 2^n p(r)
 *
 * Adding 1.5 * 2^(mantissa bits - 3) rounds to eighths and leaves them in the lowest bits: three that select one of the eight
 * powers from 1 to 2 and, with the bias in the same constant, the exponent above them.  With |r| <= ln2 / 16, p has half the degree
 * that |r| <= ln2 / 2 would need: multiply-adds are what a product kernel is short of (lab/forward has the cycles).  The clamp is
 * where n + bias = 0, so the power, and with it the result, is exactly 0 there; from there to the smallest normal number the result
 * is below that number.  Where d is NaN so is p, whatever the power.
 *
 * f32: p of degree 3 with p(0) = p'(0) = 1, minimax in the relative error (0.44 units of 2^-24).  The error of the result is 1.2
 * units in the last place, plus 0.05 |d| from the rounding of ln2 (measured over [-87, 0]).  f64: degree 7 in base 2 (0.03 units of
 * 2^-53), even and odd powers apart; 1.0 units in the last place, plus 0.13 |d| from the rounding of log2 e.
 */
#ifdef VF_LANES

/* r from d and -n, without losing the low bits that cancel: fused, or in two parts, the first of which has an exact product. */
VF_INLINE vf exp_remainder(vf d, vf minus_n)
{
#if REAL_BITS == 32 && VF_FUSED
    return vf_fma(minus_n, vf_set(0x1.62e43p-1f), d);
#elif REAL_BITS == 32
    return vf_add(vf_add(d, vf_mul(minus_n, vf_set(0.693359375f))), vf_mul(minus_n, vf_set(-2.12194440e-4f)));
#elif VF_FUSED
    return vf_fma(d, vf_set(0x1.71547652b82fep+0), minus_n);
#else
    vf r = vf_add(vf_add(d, vf_mul(minus_n, vf_set(0x1.62e42feep-1))), vf_mul(minus_n, vf_set(0x1.a39ef35793c76p-33)));
    return vf_mul(r, vf_set(0x1.71547652b82fep+0));
#endif
}

/* q with p(r) = 1 + r q(r). */
VF_INLINE vf exp_polynomial(vf r)
{
#if REAL_BITS == 32
    vf p = vf_fma(r, vf_set(0.16666862f), vf_set(0.50006485f));
    return vf_fma(p, r, vf_set(1));
#else
    static const double c[8] = {1.0,
                                0.69314718055994531812,
                                0.24022650695911516913,
                                0.05550410866480234232,
                                0.0096181290851698218439,
                                0.0013333558238985614624,
                                0.0001540452214289533064,
                                0.000015251844166854339614};
    vf r2 = vf_mul(r, r), p = vf_fma(vf_set(c[7]), r2, vf_fma(vf_set(c[6]), r, vf_set(c[5])));
    p = vf_fma(p, r2, vf_fma(vf_set(c[4]), r, vf_set(c[3])));
    return vf_fma(p, r2, vf_fma(vf_set(c[2]), r, vf_set(c[1])));
#endif
}

/* exp(d) = power * (1 + r q). */
VF_INLINE void exp_parts(vf d, vf *power, vf *r, vf *q)
{
#if REAL_BITS == 32
    const vf magic = vf_set(0x1.8p20f + 127), clamp = vf_set(-88.0296919f), log2_e = vf_set(0x1.715476p+0f);
#else
    const vf magic = vf_set(0x1.8p49 + 1023), clamp = vf_set(-709.08956571282404), log2_e = vf_set(0x1.71547652b82fep+0);
#endif
    d = vf_max(clamp, d);
    vf t = vf_fma(d, log2_e, magic);
    *r = exp_remainder(d, vf_sub(magic, t));
    *q = exp_polynomial(*r);
    *power = vf_power(t);
}

VF_INLINE vf vf_exp(vf d)
{
    vf power, r, q;
    exp_parts(d, &power, &r, &q);
    return vf_fma(q, vf_mul(r, power), power);
}

/* A weight recomputed from lse, at most 1: where scores are so large that their rounding exceeds 88, one that is computed in
 * another order than forward's may be as far above lse, and exp would leave its range.  NaN where s or lse is. */
VF_INLINE vf weight_from_lse(vf s, vf lse) { return vf_exp(vf_min(vf_zero(), vf_sub(s, lse))); }

#endif

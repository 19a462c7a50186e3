// @ts-check
// Submit one withdrawal over HTTP, as often as it takes, with the same key and the same body. TypeScript checks it by its comments; Node 18 or
// newer runs it as it stands:
//
//   PAIDONCE_URL=http://127.0.0.1:8470 PAIDONCE_TOKEN_FILE=/run/secrets/wallet node withdraw.mjs KEY withdrawal.json
import { readFileSync } from "node:fs";
import { setTimeout } from "node:timers/promises";

/** @typedef {{ state?: string, code?: string, path?: string, transfer_id?: string }} Answer */

/**
 * @param {string} url @param {string} token @param {string} key @param {string} body
 * @returns {Promise<Answer>}
 */
export async function withdraw(url, token, key, body) {
  for (;;) {
    let status = 0; // no answer: it may or may not have arrived, so ask again, with the same key
    let pause = 2;
    /** @type {Answer} */
    let answer = {};
    try {
      const response = await fetch(url + "/v1/withdrawals", {
        method: "POST",
        headers: { Authorization: "Bearer " + token, "Content-Type": "application/json", "Idempotency-Key": key, Prefer: "wait=10" },
        body,
        signal: AbortSignal.timeout(30_000),
      });
      pause = Number(response.headers.get("Retry-After") ?? 1);
      answer = await response.json();
      status = response.status;
    } catch {
      status = 0;
    }
    if (status === 200 || status === 201) return answer;
    if (![0, 202, 409, 500, 503].includes(status)) throw new Error(`refused: ${status} ${answer.code} ${answer.path ?? ""}`);
    if (answer.state === "parked") throw new Error("a person must look: do not send it again under another key");
    await setTimeout(pause * 1000);
  }
}

const token = readFileSync(process.env.PAIDONCE_TOKEN_FILE ?? "", "utf8").split("\n")[0].trim();
const outcome = await withdraw(process.env.PAIDONCE_URL ?? "", token, process.argv[2], readFileSync(process.argv[3], "utf8"));
console.log(outcome.state, outcome.transfer_id ?? outcome.code);

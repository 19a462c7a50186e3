// @ts-check
// Publish one job straight to JetStream, without a client library: the protocol is text. In earnest use the client of nats.io
// (@nats-io/transport-node); what matters is the same: the subject, the message id, and that nothing counts before the broker's confirmation.
//
//   node publish.mjs 127.0.0.1:4222 wallet gbp-fps KEY job.json      # job.json without v and key
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { connect } from "node:net";
import { createInterface } from "node:readline";
import { setTimeout } from "node:timers/promises";

/** @typedef {{ stream?: string, seq?: number, duplicate?: boolean, error?: { code: number, description: string } }} Confirmation */

/**
 * @param {string} address @param {string} source @param {string} route @param {string} key @param {object} job
 * @returns {Promise<Confirmation>}
 */
export async function publish(address, source, route, key, job) {
  const payload = Buffer.from(JSON.stringify({ v: 1, key, ...job }));
  const inbox = `_INBOX_publisher.${source}.${key}`;
  // The key alone would let the broker swallow another job under the same key without a word.
  const id = `${source}:${key}:${createHash("sha256").update(payload).digest("hex").slice(0, 16)}`;
  const headers = `NATS/1.0\r\nNats-Msg-Id: ${id}\r\n\r\n`;
  const [host, port] = [address.slice(0, address.lastIndexOf(":")), address.slice(address.lastIndexOf(":") + 1)];
  const socket = connect(Number(port), host);
  socket.setTimeout(10_000, () => socket.destroy(new Error("no confirmation")));
  socket.on("error", () => {}); // the lines end, which is all that matters
  try {
    socket.write('CONNECT {"verbose":false,"headers":true,"no_responders":true,"protocol":1}\r\n' + `SUB ${inbox} 1\r\n`);
    socket.write(`HPUB withdrawals.jobs.${route}.${source} ${inbox} ${headers.length} ${headers.length + payload.length}\r\n${headers}`);
    socket.write(Buffer.concat([payload, Buffer.from("\r\n")]));
    let answered = false;
    for await (const line of createInterface({ input: socket, crlfDelay: Infinity })) {
      if (answered) return JSON.parse(line);
      if (line.startsWith("PING")) socket.write("PONG\r\n");
      if (line.startsWith("HMSG") || line.startsWith("-ERR")) break; // nobody answers, or the broker refuses this connection
      answered = line.startsWith("MSG ");
    }
    throw new Error("no confirmation");
  } finally {
    socket.destroy();
  }
}

const [address, source, route, key, file] = process.argv.slice(2);
const job = JSON.parse(readFileSync(file, "utf8"));
/** @type {Confirmation | undefined} */
let confirmation;
for (let attempt = 0; !confirmation && attempt < 30; attempt++) {
  try {
    confirmation = await publish(address, source, route, key, job);
  } catch {
    await setTimeout(1000); // it may or may not be stored: publish the same bytes under the same id again
  }
}
if (!confirmation) throw new Error("not confirmed: publish it again later, with the same key");
if (confirmation.error) throw new Error("refused: " + confirmation.error.description);
console.log(confirmation.duplicate ? "confirmed again" : "confirmed");

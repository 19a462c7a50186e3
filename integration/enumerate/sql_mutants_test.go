package enumerate

import (
	"net/url"
	"strings"
	"testing"

	"github.com/paidonce/paidonce/integration/stack"
)

// sqlMutant is package ledger broken on purpose: in the statement that has the words of in, the first of two edits says the second.
type sqlMutant struct {
	name  string
	seed  uint64 // of the calls that tell it first
	in    string
	edits []string
}

func (m *sqlMutant) change(sql string) string {
	if !strings.Contains(sql, m.in) {
		return sql
	}
	return strings.NewReplacer(m.edits...).Replace(sql)
}

// Words by which the statements of package ledger are told apart.
const (
	inClaim   = "ON CONFLICT ON CONSTRAINT operations_key DO UPDATE"
	inRefused = "recorded AS (\n  INSERT INTO operations"
	inDue     = "chosen AS MATERIALIZED"
	inParked  = "AND parked AND due_at <= now()"
	inHistory = "FROM attempts WHERE operation_id = ANY"
	inAttempt = "WITH resend AS MATERIALIZED"
	inRecord  = "WITH record AS MATERIALIZED"
	inRenew   = "renewed AS ("
	inLate    = "WITH decided AS ("
	inContra  = "WITH marked AS ("
	inPurge   = "WITH gone AS ("
)

// sqlMutants are the deliberate breakages of the SQL of package ledger. Each must make the model and Postgres differ.
func sqlMutants() []sqlMutant {
	return []sqlMutant{
		{"claim: busy is answered as claimed", 0, inClaim, []string{"(o.state = 'claimed' AND o.claim_token = excluded.claim_token)", "o.state = 'claimed'"}},
		{"claim: what was attempted is claimed as fresh", 13, inClaim, []string{"AND o.fence = 0 ", ""}},
		{"claim: what is held is claimed", 20, inClaim, []string{"AND NOT o.held ", ""}},
		{"claim: what is in doubt is claimed as fresh", 2, inClaim, []string{"AND NOT o.in_doubt)", ")"}},
		{"claim: another job is claimed", 21, inClaim, []string{"AND o.fingerprint = excluded.fingerprint AND", "AND"}},
		{"claim: parked and finished are claimed", 3, inClaim, []string{"o.state = 'open' AND o.fence = 0", "o.state <> 'claimed'"}},
		{"claim: a pause is not obeyed", 0, inClaim, []string{"NOT paused AND coalesce(w.not_before", "coalesce(w.not_before"}},
		{"claim: not_before is not obeyed", 1, inClaim, []string{"coalesce(w.not_before <= now(), true)", "true"}},
		{"claim: not_after is not obeyed", 13, inClaim, []string{"coalesce(w.not_after > now(), true)", "true"}},
		{"claim: what was published before a recovery is fresh", 0, inClaim, []string{"coalesce(w.published_at < g.doubt_before, g.doubt_before > '-infinity') OR lost", "false"}},
		{"claim: a stray is fresh", 12, inClaim, []string{"EXISTS (SELECT FROM strays s WHERE s.key = w.key)", "false"}},
		{"claim: doubt is not stored", 11, inClaim, []string{"start OR doubt, paused", "start, paused"}},
		{"claim: an attempt is committed in doubt", 0, inClaim, []string{"AND NOT w.doubt AND won.new", "AND won.new"}},
		{"claim: no attempt is committed", 0, inClaim, []string{"AND NOT w.doubt AND won.new", "AND false"}},
		{"claim: the fence is not raised", 3, inClaim, []string{"fence = o.fence + (o.state = 'open')::int", "fence = o.fence"}},
		{"claim: it is not due after its lease", 0, inClaim, []string{"now() + $22 * interval '1 ms' WHEN w.paused", "now() + interval '1 day' WHEN w.paused"}},
		{"refused: doubt is forgotten", 32, inRefused, []string{"WHERE doubt AND partner <> ''", "WHERE false"}},
		{"refused: everything is put on record", 1, inRefused, []string{"WHERE doubt AND partner <> ''", "WHERE partner <> ''"}},
		{"refused: a stray is fresh", 22, inRefused, []string{"EXISTS (SELECT FROM strays s WHERE s.key = w.key)", "false"}},
		{"due: what is not due is claimed", 0, inDue, []string{"AND d.due_at <= now()", ""}},
		{"due: the lease is skipped", 0, inDue, []string{"AND o.lease_until <= now()", ""}},
		{"due: a lapsed lease is forgotten", 0, inDue, []string{"OR (o.state = 'claimed' AND o.lease_until <= now())", ""}},
		{"due: parked is claimed", 1, inDue, []string{"AND NOT d.parked AND d.due_at", "AND d.due_at", "o.state = 'open' OR (", "o.state <> 'claimed' OR ("}},
		{"due: another partner's is claimed", 0, inDue, []string{"d.partner = $1 AND", "$1 <> '' AND"}},
		{"due: the fence is not raised", 0, inDue, []string{"fence = o.fence + 1", "fence = o.fence"}},
		{"due: claims in vain are not counted", 0, inDue, []string{"unobserved = o.unobserved + 1", "unobserved = o.unobserved"}},
		{"due: a pause is not told", 0, inDue, []string{"SELECT c.id, c.key, c.fence, c.unobserved, c.before, c.source, c.route, coalesce(c.partner, ''), coalesce(c.partner_key, ''), c.epoch,\n       c.in_doubt, c.first_sent_at, c.created_at, c.paused", "SELECT c.id, c.key, c.fence, c.unobserved, c.before, c.source, c.route, coalesce(c.partner, ''), coalesce(c.partner_key, ''), c.epoch,\n       c.in_doubt, c.first_sent_at, c.created_at, false"}},
		{"due: what a pause covers is claimed", 0, inDue, []string{"AND NOT l.put_off", ""}},
		{"due: what is older than a recovery is not in doubt", 0, inDue, []string{"c.created_at < g.doubt_before", "false"}},
		{"due: a hold stays", 2, inDue, []string{"held = false,", ""}},
		{"due: a stop is not told", 0, "FROM stops WHERE operation_id", []string{"code FROM stops", "'' FROM stops"}},
		{"due: attempts are forgotten", 0, inHistory, []string{"operation_id = ANY($1) ORDER", "operation_id = ANY($1) AND false ORDER"}},
		{"due: observations are forgotten", 0, "FROM observations WHERE operation_id = ANY", []string{"operation_id = ANY($1) ORDER", "operation_id = ANY($1) AND false ORDER"}},
		{"parked: it is due again at once", 2, inParked, []string{"interval '1 day'", "interval '0'"}},
		{"attempt: the fence is skipped", 4, inAttempt, []string{" AND o.fence = r.fence", ""}},
		{"attempt: the token is skipped", 12, inAttempt, []string{" AND o.claim_token = r.token", ""}},
		{"attempt: the state is skipped", 0, inAttempt, []string{" AND o.state = 'claimed'", ""}},
		{"attempt: another partner key is committed", 4, inAttempt, []string{"coalesce(o.partner_key = r.partner_key, true)", "true"}},
		{"attempt: other bytes are committed", 10, inAttempt, []string{"a.body_sha256 <> r.body_sha256 AND", "false AND"}},
		{"attempt: another endpoint is committed in doubt", 5, inAttempt, []string{"a.endpoint <> r.endpoint OR", ""}},
		{"attempt: another credential is committed in doubt", 7, inAttempt, []string{"OR a.credential <> r.credential", ""}},
		{"attempt: doubt is not stored", 3, inAttempt, []string{", in_doubt = true", ""}},
		{"attempt: it is answered and not committed", 1, inAttempt, []string{"WHERE h.same AND h.stopped IS NULL\n  ON CONFLICT", "WHERE false\n  ON CONFLICT"}},
		{"attempt: a stop is not obeyed", 0, inAttempt, []string{"s.operation_id = o.id", "false"}},
		{"record: the fence is skipped", 4, inRecord, []string{" AND o.fence = r.fence", ""}},
		{"record: the token is skipped", 5, inRecord, []string{" AND o.claim_token = r.token", ""}},
		{"record: the state is skipped", 0, inRecord, []string{" AND o.state = 'claimed'", ""}},
		{"record: a mismatch on record is overlooked", 17, inRecord, []string{"SELECT r.next = 'authorized' AND", "SELECT false AND"}},
		{"record: doubt is not stored", 0, inRecord, []string{"in_doubt = h.in_doubt", "in_doubt = false"}},
		{"record: claims in vain are still counted", 0, inRecord, []string{"unobserved = 0", "unobserved = o.unobserved"}},
		{"record: the epoch is not raised", 0, inRecord, []string{"epoch = o.epoch + h.raise", "epoch = o.epoch"}},
		{"record: an observation is dropped", 0, inRecord, []string{"ON r.n = f.record", "ON r.n = f.record AND f.n > 0"}},
		{"record: an outcome has no event", 3, inRecord, []string{"WHERE state IN ('authorized', 'rejected', 'cancelled', 'parked')", "WHERE state IN ('rejected', 'cancelled', 'parked')"}},
		{"record: the journal has one side", 3, inRecord, []string{", (1, 'transit:' || r.partner)", ""}},
		{"record: the journal has none", 3, inRecord, []string{"WHERE r.state = 'authorized'", "WHERE false"}},
		{"record: what ended is still due", 0, inRecord, []string{"AND r.state IN ('authorized', 'rejected', 'cancelled')\n", "AND false\n"}},
		{"record: the next step is forgotten", 0, inRecord, []string{"AND r.state IN ('open', 'parked')", "AND false"}},
		{"record: parked is due like open", 2, inRecord, []string{"parked = r.state = 'parked'", "parked = false"}},
		{"renew: the fence is skipped", 35, inRenew, []string{" AND o.fence = c.fence", ""}},
		{"renew: the token is skipped", 17, inRenew, []string{" AND o.claim_token = c.token", ""}},
		{"renew: nothing is renewed", 10, inRenew, []string{"lease_until = now() + $5::int8", "lease_until = lease_until + 0 * $5::int8"}},
		{"late: a Rejected overwrites", 0, "AS f(n, kind, verdict, authoritative, transfer_id, code, evidence, asked_at)\n\t\tON CONFLICT", []string{"INSERT INTO observations", "WITH late AS (UPDATE operations SET state = 'rejected', outcome_at = now(), in_doubt = false, held = false, code = 'late', lease_until = NULL WHERE id = $1 AND state IN ('open', 'claimed', 'parked') AND 'rejected' = ANY($6::text[])) INSERT INTO observations"}},
		{"late: Authorized does not raise the fence", 5, inLate, []string{"fence = fence + 1", "fence = fence"}},
		{"late: Authorized decides nothing that is parked", 16, inLate, []string{"state IN ('open', 'claimed', 'parked')", "state IN ('open', 'claimed')"}},
		{"late: Authorized has no event", 5, inLate, []string{"SELECT id, fence, 'authorized' FROM decided", "SELECT id, fence, 'authorized' FROM decided WHERE false"}},
		{"late: Authorized has no entries", 5, inLate, []string{"AS side(sign, account)", "AS side(sign, account) WHERE false"}},
		{"late: Authorized stays due", 5, inLate, []string{"due.operation_id = d.id", "false"}},
		{"late: evidence is dropped", 0, "AS f(n, kind, verdict, authoritative, transfer_id, code, evidence, asked_at)\n\t\tON CONFLICT", []string{"FROM unnest($4::int2[]", "FROM unnest(($4::int2[])[:0]"}},
		{"late: a mismatch leaves the claim", 0, "fence = fence + 1 WHERE id = $1 AND state = 'claimed'", []string{"fence = fence + 1", "fence = fence"}},
		{"late: a stray is dropped", 0, "INSERT INTO strays", []string{"FROM unnest($3::int2[]", "FROM unnest(($3::int2[])[:0]"}},
		{"contradicted: it is not marked", 0, inContra, []string{"contradicted_at = now()", "contradicted_at = NULL"}},
		{"contradicted: nobody pauses", 0, inContra, []string{"SELECT scope, name, $2::text, $3::text FROM stopped\n  ON CONFLICT", "SELECT scope, name, $2::text, $3::text FROM stopped WHERE false\n  ON CONFLICT"}},
		{"contradicted: it has no event", 0, inContra, []string{"'late_authorized' FROM marked", "'late_authorized' FROM marked WHERE false"}},
		{"pause: it does not stand", 3, "INSERT INTO pauses (scope, name, reason, by) VALUES", []string{"VALUES ($1, $2, $3, $4)", "SELECT $1, $2, $3, $4 WHERE false"}},
		{"purge: what is under way is purged", 0, "octet_length(p", []string{"o.state IN ('authorized', 'rejected', 'cancelled') AND o.outcome_at < x.cutoff AND o.contradicted_at IS NULL", "true", "AND o.state IN ('authorized', 'rejected', 'cancelled') AND o.contradicted_at IS NULL", ""}},
		{"purge: nothing is purged", 1, inPurge, []string{"AND o.id = p.operation_id", "AND false"}},
	}
}

// TestEveryBreakageOfTheSQLIsFound: what the model does not do, Postgres may not do unseen. The breakages of the model have their twins here.
func TestEveryBreakageOfTheSQLIsFound(t *testing.T) {
	urls := stack.Databases(t)
	server, err := url.Parse(urls.Worker)
	if err != nil {
		t.Fatal(err)
	}
	found, tried := 0, 0
	all := sqlMutants()
	for i, m := range all {
		if raced && i%10 != 0 { // the race detector has nothing to find in SQL
			continue
		}
		tried++
		t.Run(strings.ReplaceAll(m.name, " ", "_"), func(t *testing.T) {
			r := startRewriter(t, server.Host, m.change)
			p := open(t, r.by(urls.Worker), r.by(urls.Desk), urls.Superuser)
			for n := range uint64(seeds) {
				seed := (m.seed + n) % seeds
				w := p.run(seed, map[string]int{})
				if len(w.wrong) == 0 {
					continue
				}
				found++
				t.Logf("seed %d, call %d: %s", seed, len(w.calls), w.wrong[0])
				if r.hits.Load() == 0 {
					t.Error("no statement was changed: what was found is something else")
				}
				return
			}
			t.Errorf("%d seeds of %d calls told no difference; %d statements were changed", seeds, length, r.hits.Load())
		})
	}
	t.Logf("%d of %d breakages of the SQL found", found, tried)
}

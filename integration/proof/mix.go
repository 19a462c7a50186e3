package proof

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/paidonce/paidonce/ledger/money"
	"github.com/paidonce/paidonce/worker/job"
)

// Lane is one way for jobs to come: a source and the route that it asks for.
type Lane struct{ Source, Route string }

// Kind says what a message is for.
type Kind uint8

// The kinds.
const (
	Fresh       Kind = iota // the first message of a key
	Duplicate               // the same job under the same message id: the broker may drop it
	Copied                  // the same job under another message id: the ledger has to notice
	Conflicting             // the same key, another amount
	Malformed               // no job at all
)

// Message is one message to publish.
type Message struct {
	Kind    Kind
	Lane    Lane
	Of      int // index of the key; malformed ones have none
	MsgID   string
	Payload []byte
}

// Mixture is what one run publishes.
type Mixture struct {
	Keys     []Published
	Messages []Message

	lanes []Lane
}

// NewMixture makes n keys and their messages: about 80 % fresh, 10 % duplicates (half of them past the broker's window), 5 %
// conflicting and 5 % malformed. The same seed mixes the same way; keys are always new.
func NewMixture(lanes []Lane, n int, seed uint64, now time.Time) (*Mixture, error) {
	random := rand.New(rand.NewPCG(seed, 1))
	m := &Mixture{lanes: lanes}
	for i := range n {
		if err := m.addKey(i, random, now); err != nil {
			return nil, err
		}
	}
	for i := range n / 16 {
		m.insert(random, 0, Message{Kind: Malformed, Lane: lanes[i%len(lanes)], Of: -1, MsgID: fmt.Sprintf("malformed:%s", job.NewKey()), Payload: malformedPayload(i)})
	}
	return m, nil
}

// addKey adds a fresh message; every eighth key gets a duplicate, every sixteenth a conflict, behind it.
func (m *Mixture) addKey(i int, random *rand.Rand, now time.Time) error {
	lane := m.lanes[i%len(m.lanes)]
	j := newJob(i, lane, random)
	if i%50 == 7 {
		j.NotAfter = now.Add(-time.Minute).UTC().Truncate(time.Second)
	}
	payload, err := job.Encode(j)
	if err != nil {
		return fmt.Errorf("encode a job: %w", err)
	}
	id := job.MsgID(lane.Source, j.Key, payload)
	place := len(m.Messages)
	m.Keys = append(m.Keys, Published{Key: j.Key, Reference: string(j.Reference.Reveal()), Expired: !j.NotAfter.IsZero()})
	m.Messages = append(m.Messages, Message{Kind: Fresh, Lane: lane, Of: i, MsgID: id, Payload: payload})
	switch i % 16 {
	case 3:
		m.insert(random, place+1, Message{Kind: Duplicate, Lane: lane, Of: i, MsgID: id, Payload: payload})
	case 11:
		m.insert(random, place+1, Message{Kind: Copied, Lane: lane, Of: i, MsgID: id + ":copy", Payload: payload})
	case 14:
		j.Amount.Minor += 100
		if payload, err = job.Encode(j); err != nil {
			return fmt.Errorf("encode a conflicting job: %w", err)
		}
		m.insert(random, place+1, Message{Kind: Conflicting, Lane: lane, Of: i, MsgID: job.MsgID(lane.Source, j.Key, payload), Payload: payload})
	}
	return nil
}

// insert puts a message somewhere at or behind a place: directly behind its original as often as far away.
func (m *Mixture) insert(random *rand.Rand, from int, msg Message) {
	m.Messages = slices.Insert(m.Messages, from+random.IntN(len(m.Messages)-from+1), msg)
}

func newJob(i int, lane Lane, random *rand.Rand) job.Job {
	key := job.NewKey()
	j := job.Job{
		Key: key, Source: lane.Source, Route: lane.Route,
		DebtorAccount: job.Sensitive(fmt.Sprintf("cust-%d", random.IntN(1000))),
		Amount:        money.Amount{Minor: 100 + random.Int64N(500_000), Currency: "GBP"},
		Beneficiary:   job.Beneficiary{Name: job.Sensitive(fmt.Sprintf("A N Example %d", i))},
		// 18 characters is what Faster Payments carries to the beneficiary's statement.
		Reference: job.Sensitive(fmt.Sprintf("W%06d-%s", i, strings.ToUpper(key.String()[26:36]))),
	}
	if i%3 == 0 {
		j.Beneficiary.IBAN = "GB33BUKB20201555555555" // of the format's own documentation
	} else {
		j.Beneficiary.SortCode = job.Sensitive(fmt.Sprintf("%06d", 200000+random.IntN(100000)))
		j.Beneficiary.AccountNumber = job.Sensitive(fmt.Sprintf("%08d", random.IntN(100_000_000)))
	}
	return j
}

// malformedPayload is one of many ways not to be a job.
func malformedPayload(i int) []byte {
	const key = `"key":"01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11",`
	const rest = `"debtor_account":"cust-1","beneficiary":{"name":"A N Example","iban":"GB33BUKB20201555555555"}}`
	ways := []string{
		`not json`,
		``,
		`{"v":1,` + key,
		`{"v":1,"amount":"49.00","currency":"GBP",` + rest,
		`{"v":1,` + key + `"amount":"49.0","currency":"GBP",` + rest,
		`{"v":1,` + key + `"amount":49.00,"currency":"GBP",` + rest,
		`{"v":1,` + key + `"amount":"49.00","amount":"49.00","currency":"GBP",` + rest,
		`{"v":1,` + key + `"amount":"49.00","currency":"XTS",` + rest,
		`{"v":1,` + key + `"amount":"49.00","currency":"GBP","Key":"x",` + rest,
		`{"v":1,` + key + `"amount":"49.00","currency":"GBP",` + rest + `{}`,
		`{"v":1,` + key + `"amount":"49.00","currency":"GBP","debtor_account":"cust-1","beneficiary":{"name":"A N Example","iban":"GB34BUKB20201555555555"}}`,
		"\xef\xbb\xbf" + `{"v":1,` + key + `"amount":"49.00","currency":"GBP",` + rest,
	}
	return []byte(ways[i%len(ways)])
}

package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/paidonce/paidonce/ledger/money"
	"github.com/paidonce/paidonce/worker/job"
)

const (
	route  = "gbp-fps"
	source = "wallet"
)

// kind says what a message is for.
type kind uint8

const (
	fresh       kind = iota // the first message of a key
	duplicate               // the same job under the same message id: the broker may drop it
	copied                  // the same job under another message id: the ledger has to notice
	conflicting             // the same key, another amount
	malformed               // no job at all
)

// message is one message to publish.
type message struct {
	kind    kind
	of      int // index of the key; malformed ones have none
	msgID   string
	payload []byte
}

// mixture is what one run publishes.
type mixture struct {
	keys     []published
	messages []message
}

// newMixture makes n keys and their messages: about 80 % fresh, 10 % duplicates (half of them past the broker's window), 5 %
// conflicting and 5 % malformed. The same seed mixes the same way; keys are always new.
func newMixture(n int, seed uint64, now time.Time) (*mixture, error) {
	random := rand.New(rand.NewPCG(seed, 1))
	m := &mixture{}
	for i := range n {
		if err := m.addKey(i, random, now); err != nil {
			return nil, err
		}
	}
	for i := range n / 16 {
		m.insert(random, 0, message{kind: malformed, of: -1, msgID: fmt.Sprintf("malformed:%s", job.NewKey()), payload: malformedPayload(i)})
	}
	return m, nil
}

// addKey adds a fresh message; every eighth key gets a duplicate, every sixteenth a conflict, behind it.
func (m *mixture) addKey(i int, random *rand.Rand, now time.Time) error {
	j := newJob(i, random)
	if i%50 == 7 {
		j.NotAfter = now.Add(-time.Minute).UTC().Truncate(time.Second)
	}
	payload, err := job.Encode(j)
	if err != nil {
		return fmt.Errorf("encode a job: %w", err)
	}
	id := job.MsgID(source, j.Key, payload)
	place := len(m.messages)
	m.keys = append(m.keys, published{key: j.Key, reference: string(j.Reference.Reveal()), expired: !j.NotAfter.IsZero()})
	m.messages = append(m.messages, message{kind: fresh, of: i, msgID: id, payload: payload})
	switch i % 16 {
	case 3:
		m.insert(random, place+1, message{kind: duplicate, of: i, msgID: id, payload: payload})
	case 11:
		m.insert(random, place+1, message{kind: copied, of: i, msgID: id + ":copy", payload: payload})
	case 14:
		j.Amount.Minor += 100
		if payload, err = job.Encode(j); err != nil {
			return fmt.Errorf("encode a conflicting job: %w", err)
		}
		m.insert(random, place+1, message{kind: conflicting, of: i, msgID: job.MsgID(source, j.Key, payload), payload: payload})
	}
	return nil
}

// insert puts a message somewhere at or behind a place: directly behind its original as often as far away.
func (m *mixture) insert(random *rand.Rand, from int, msg message) {
	m.messages = slices.Insert(m.messages, from+random.IntN(len(m.messages)-from+1), msg)
}

func newJob(i int, random *rand.Rand) job.Job {
	key := job.NewKey()
	j := job.Job{
		Key: key, Source: source, Route: route,
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

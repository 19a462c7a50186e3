package prove

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"
)

func TestMinor(t *testing.T) {
	for _, c := range []struct {
		decimal, currency string
		want              int64
		ok                bool
	}{
		{"49.00", "GBP", 4900, true}, {"500", "JPY", 500, true}, {"18.600", "KWD", 18600, true}, {"0.01", "GBP", 1, true},
		{"92233720368547758.07", "GBP", math.MaxInt64, true},
		{"92233720368547758.08", "GBP", 0, false}, {"99233720368547758.07", "GBP", 0, false},
		{"49", "GBP", 0, false}, {"49.0", "GBP", 0, false}, {"49.000", "GBP", 0, false}, {"500.", "JPY", 0, false}, {"500.0", "JPY", 0, false},
		{"", "GBP", 0, false}, {".50", "GBP", 0, false}, {"01.00", "GBP", 0, false}, {"-1.00", "GBP", 0, false}, {"+1.00", "GBP", 0, false},
		{"1e2.00", "GBP", 0, false}, {"1,000.00", "GBP", 0, false}, {"0.00", "GBP", 0, false}, {"49.00", "XXX", 0, false}, {"49.00", "", 0, false},
	} {
		if got, ok := minor(c.decimal, c.currency); ok != c.ok || ok && got != c.want {
			t.Errorf("%q %s: %d, %v; want %d, %v", c.decimal, c.currency, got, ok, c.want, c.ok)
		}
	}
}

func TestReadJobIsLenientAndNeverGuesses(t *testing.T) {
	const known = "01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11"
	for payload, want := range map[string]string{
		`{"key":"` + known + `","amount":"49.00","currency":"GBP","more":[1]}`: known + " true 4900",
		`{"key":"01939E1C-7A52-7C3E-9B6E-2F6F0B0F4A11"}`:                       known + " false 0",
		`{"key":"` + known + `","amount":"49.0","currency":"GBP"}`:             known + " false 0",
		`{"key":"{01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11}"}`:                     "none false 0",
		`{"key":"ffffffff-ffff-ffff-ffff-ffffffffffff"}`:                       "none false 0",
		`{"key":"00000000-0000-0000-0000-000000000000"}`:                       "none false 0",
		`{"key":17}`: "none false 0",
		`{`:          "none false 0",
		``:           "none false 0",
	} {
		j := readJob([]byte(payload))
		name := keyText(j.key)
		if j.key == (id{}) {
			name = "none"
		}
		if got := fmt.Sprintf("%s %v %d", name, j.sound, j.amount); got != want {
			t.Errorf("%s: %s, want %s", payload, got, want)
		}
	}
	again := (jobSeen{}).place(7)
	if (jobSeen{}).place(7) == (jobSeen{}).place(8) || again != (jobSeen{}).place(7) {
		t.Error("messages without a key meet by their sequence")
	}
}

// Every record comes back once, with all others of its id, in the order in which it was added, however small the buffers are.
func TestSpillBringsTogether(t *testing.T) {
	for _, parts := range []int{1, 8, 2048} {
		s, err := newSpill(t.TempDir(), "x", parts)
		if err != nil {
			t.Fatal(err)
		}
		s.limit = 64
		const ids, each = 300, 7
		for n := range each {
			for i := range ids {
				if err := s.add(id{byte(i), byte(i >> 8)}, fields{byte(n)}.text(fmt.Sprint(i))); err != nil {
					t.Fatal(err)
				}
			}
		}
		long := make([]byte, 1000)
		if err := s.add(id{1, 1, 1}, long); err != nil {
			t.Fatal(err)
		}
		groups := 0
		err = s.groups(func(of id, records [][]byte) error {
			groups++
			if of == (id{1, 1, 1}) {
				if len(records) != 1 || !slices.Equal(records[0], long) {
					t.Errorf("the long record came back with %d bytes", len(records[0]))
				}
				return nil
			}
			i := int(of[0]) + int(of[1])<<8
			if len(records) != each {
				t.Errorf("id %d: %d records", i, len(records))
			}
			for n, record := range records {
				r := reader(record)
				if int(r.byte()) != n || r.text() != fmt.Sprint(i) {
					t.Errorf("id %d: record %d is another one", i, n)
				}
			}
			return nil
		})
		if err != nil || groups != ids+1 {
			t.Errorf("%d parts: %d groups, %v", parts, groups, err)
		}
		if left, err := os.ReadDir(s.dir); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	}
}

func TestSpillSaysWhenAPartIsDamaged(t *testing.T) {
	s, err := newSpill(t.TempDir(), "x", 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.file(0), []byte("0123456789abcdef\x05abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.groups(func(id, [][]byte) error { return errors.New("visited") }); err == nil || err.Error() != "read a part: a record is cut short" {
		t.Errorf("%v", err)
	}
}

func TestPartsFor(t *testing.T) {
	for operations, want := range map[int64]int{0: 8, 160_000: 8, 10_000_000: 500, 1 << 40: 2048} {
		if got := partsFor(operations); got != want {
			t.Errorf("%d operations: %d parts, want %d", operations, got, want)
		}
	}
}

// The contract's names of what must be zero, and advice for each.
func TestEveryKindHasACounterAndAdvice(t *testing.T) {
	b := newBook(1)
	for _, k := range kinds() {
		b.find(Finding{Kind: k})
		b.find(Finding{Kind: k})
		if k.Advice() == "" || *b.counter(k) != 2 {
			t.Errorf("%s: advice %q, counted %d", k, k.Advice(), *b.counter(k))
		}
	}
	r := b.report()
	if r.Held || r.Faults() != 22 || len(r.Findings) != 1 || r.Findings[0].Kind != KindTwice {
		t.Errorf("the worst comes first, and no more than asked for: %+v", r)
	}
	if r := newBook(1).report(); !r.Held || r.Findings == nil {
		t.Errorf("nothing found: %+v", r)
	}
}

func TestJournalOf(t *testing.T) {
	for settlement, want := range map[string]string{
		"pending": "[authorized] []", "settled": "[authorized settled] []", "failed": "[authorized failed] []",
		"returned": "[authorized returned] [settled failed]",
	} {
		needed, allowed := journalOf(&operation{state: "authorized", settlement: settlement})
		if got := fmt.Sprint(needed, allowed); got != want {
			t.Errorf("%s: %s, want %s", settlement, got, want)
		}
	}
}

func TestCleanShowsNothingThatSteersATerminal(t *testing.T) {
	if got := clean("tr_1\x1b[2J\u202e ä"); got != "tr_1?[2J??????" {
		t.Errorf("%q", got)
	}
}

func TestQueueOwns(t *testing.T) {
	q := &queueState{floors: map[string]uint64{"gbp-fps": 10}}
	for subject, want := range map[string]bool{
		"withdrawals.jobs.gbp-fps.wallet": false, "withdrawals.jobs.unknown.wallet": true, "withdrawals.jobs.gbp-fps.wallet.more": true,
		"withdrawals.jobs.gbp-fps": true,
	} {
		if got := q.owns(subject, 10); got != want {
			t.Errorf("%s at its floor: %v, want %v", subject, got, want)
		}
	}
	if !q.owns("withdrawals.jobs.gbp-fps.wallet", 11) {
		t.Error("beyond the floor the queue owns it")
	}
}

// Which of two operations with one transfer is called the owner does not depend on which the ledger recorded first.
func TestShare_OwnerIsTheLowestKey(t *testing.T) {
	low, high := id{15: 4}, id{15: 5}
	for _, order := range [][]id{{low, high}, {high, low}} {
		r := run{book: newBook(10)}
		var records [][]byte
		for _, key := range order {
			records = append(records, fields{ownsTransfer}.bytes(key[:]))
		}
		if err := r.share(records, "transfer id", func(*transfer) error { return nil }); err != nil {
			t.Fatal(err)
		}
		found := r.book.report().Findings
		const want = "shares its transfer id with operation 00000000-0000-0000-0000-000000000004"
		if len(found) != 1 || found[0].Key != "00000000-0000-0000-0000-000000000005" || found[0].Text != want {
			t.Errorf("found %+v", found)
		}
	}
}

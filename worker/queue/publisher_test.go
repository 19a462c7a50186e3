package queue

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/ledger/money"
	"github.com/paidonce/paidonce/worker/job"
)

var (
	keyOne = uuid.MustParse("01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11")
	// The first 16 hex digits of the SHA-256 of message(keyOne).Payload, by sha256sum.
	msgIDOne = "wallet:01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11:04e5ffd2dd55dbbe"
)

func (r *rig) stored() int {
	r.t.Helper()
	s, err := r.js.Stream(ctxOf(r.t), StreamJobs)
	if err != nil {
		r.t.Fatal(err)
	}
	return int(s.CachedInfo().State.Msgs)
}

func TestPublisher_SubjectAndMessageIDAreThoseOfTheContract(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{})
	receipt, err := r.publish.Publish(ctxOf(t), message(keyOne))
	if err != nil {
		t.Fatal(err)
	}
	s, err := r.js.Stream(ctxOf(t), StreamJobs)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := s.GetMsg(ctxOf(t), receipt.Sequence)
	if err != nil {
		t.Fatal(err)
	}
	if raw.Subject != "withdrawals.jobs.gbp-fps.wallet" || raw.Header.Get("Nats-Msg-Id") != msgIDOne {
		t.Errorf("subject %s, message id %s", raw.Subject, raw.Header.Get("Nats-Msg-Id"))
	}
}

func TestPublisher_MakesAMissingKeyOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{})
	amount, err := money.Parse("49.00", "GBP")
	if err != nil {
		t.Fatal(err)
	}
	receipt, err := r.publish.Enqueue(ctxOf(t), job.Job{
		Source: testSource, Route: testRoute, DebtorAccount: "cust-4471", Amount: amount,
		Beneficiary: job.Beneficiary{Name: "A N Example", IBAN: "GB33BUKB20201555555555"},
	})
	if err != nil {
		t.Fatal(err)
	}
	payloads := make(chan []byte, 1)
	r.run(newSlots(1), func(_ context.Context, d *Delivery) { payloads <- d.Payload(); d.Done() }, ConsumerOptions{})
	got, err := job.Decode(testSource, testRoute, <-payloads)
	if err != nil {
		t.Fatal(err)
	}
	if receipt.Key == uuid.Nil || got.Key != receipt.Key {
		t.Errorf("receipt says %s, the job %s", receipt.Key, got.Key)
	}
}

func TestE11_TheSamePublishLaterIsOneMessage(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{})
	first, err := r.publish.Publish(ctxOf(t), message(keyOne))
	if err != nil {
		t.Fatal(err)
	}
	second, err := r.publish.Publish(ctxOf(t), message(keyOne))
	if err != nil {
		t.Fatal(err)
	}
	if first.Duplicate || !second.Duplicate || second.Sequence != first.Sequence {
		t.Errorf("first %+v, second %+v", first, second)
	}
	if n := r.stored(); n != 1 {
		t.Errorf("%d messages, want 1", n)
	}
}

// A job with the same key and another payload must reach the ledger, which calls it a conflict; the broker may not swallow it.
func TestB13_SameKeyWithAnotherPayloadIsDelivered(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{})
	other := message(keyOne)
	other.Payload = bytes.Replace(other.Payload, []byte("49.00"), []byte("94.00"), 1)
	for _, result := range r.publish.PublishMany(ctxOf(t), []Message{message(keyOne), other}) {
		if result.Err != nil || result.Duplicate {
			t.Errorf("%+v", result)
		}
	}
	if n := r.stored(); n != 2 {
		t.Errorf("%d messages, want 2", n)
	}
}

func TestE10_AReplayInsideTheWindowIsDelivered(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{})
	if _, err := r.publish.Publish(ctxOf(t), message(keyOne)); err != nil {
		t.Fatal(err)
	}
	receipt, err := r.publish.Replay(ctxOf(t), message(keyOne), 1)
	if err != nil || receipt.Duplicate {
		t.Fatalf("replay: %+v, %v", receipt, err)
	}
	if _, err := r.publish.Replay(ctxOf(t), message(keyOne), 1); !errors.Is(err, ErrReplayed) {
		t.Errorf("the same replay again: %v, want ErrReplayed", err)
	}
	if _, err := r.publish.Replay(ctxOf(t), message(keyOne), 2); err != nil {
		t.Errorf("the next replay: %v", err)
	}
	var seen tally
	r.run(newSlots(5), func(_ context.Context, d *Delivery) { seen.saw(d); d.Done() }, ConsumerOptions{})
	eventually(t, "three deliveries", func() bool { _, n := seen.counts(); return n == 3 })
	if got := ReplayID(keyOne, 2); got != "01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11:r2" {
		t.Errorf("replay id %s", got)
	}
}

func TestE14_PublisherRefusesWhatIsNoJob(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{})
	large, wild, nameless := message(job.NewKey()), message(job.NewKey()), message(uuid.Nil)
	large.Payload = make([]byte, 5<<20)
	wild.Route = "gbp.>"
	results := r.publish.PublishMany(ctxOf(t), []Message{large, wild, nameless, message(keyOne)})
	if !errors.Is(results[0].Err, ErrTooLarge) {
		t.Errorf("5 MB: %v", results[0].Err)
	}
	for i := range 3 {
		if results[i].Err == nil {
			t.Errorf("message %d is accepted", i)
		}
	}
	if results[3].Err != nil {
		t.Errorf("the good one: %v", results[3].Err)
	}
	if n := r.stored(); n != 1 {
		t.Errorf("%d messages, want 1", n)
	}
}

// Who publishes without this package meets the same limit at the broker, with an answer.
func TestE14_BrokerRefusesWhatIsTooLarge(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{})
	if _, err := r.js.Publish(ctxOf(t), job.Subject(testRoute, testSource), make([]byte, 200<<10)); err == nil || !refused(err) {
		t.Errorf("200 KB: %v, want a refusal", err)
	}
	if _, err := r.js.Publish(ctxOf(t), job.Subject(testRoute, testSource), make([]byte, 5<<20)); err == nil || !refused(err) {
		t.Errorf("5 MB: %v, want a refusal", err)
	}
}

// Fact 10: a reconnect fails futures whose messages are stored. Every job is published until it is confirmed, and is there once.
func TestFact10_PublishesSurviveACrashOfTheServerOnce(t *testing.T) {
	t.Parallel()
	server := startChild(t)
	r := newRigAt(t, server.url, TopologyOptions{})
	stored := 0
	for again, tries := 0, 0; again == 0; tries++ {
		if tries == 10 { // where this process gets little time, a crash may come when everything is confirmed
			t.Fatal("none was published twice: the crash came too late to test anything")
		}
		ms := messages(20_000)
		results := make(chan []Result, 1)
		go func() { results <- r.publish.PublishMany(ctxOf(t), ms) }()
		eventually(t, "some are stored", func() bool { return r.stored() > stored+500 })
		server.crash()
		for i, result := range <-results {
			if result.Err != nil {
				t.Fatalf("message %d: %v", i, result.Err)
			}
			if result.Published > 1 {
				again++
			}
		}
		if stored += len(ms); r.stored() != stored {
			t.Errorf("%d messages stored, want %d", r.stored(), stored)
		}
	}
}

func TestPublisher_WithoutAnAnswerItSaysUnconfirmed(t *testing.T) {
	t.Parallel()
	nc := connect(t, "nats://127.0.0.1:1", RoleGateway)
	p, err := NewPublisher(nc, PublisherOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	receipt, err := p.Publish(ctx, message(keyOne))
	if !errors.Is(err, ErrUnconfirmed) || receipt.Key != keyOne {
		t.Errorf("receipt %+v, error %v", receipt, err)
	}
}

func TestPublisher_AFullStreamIsWaitedFor(t *testing.T) {
	t.Parallel()
	r := newRig(t, TopologyOptions{MaxBytes: 4096})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	results := make(chan []Result, 1)
	go func() { results <- r.publish.PublishMany(ctx, messages(50)) }()
	before := 0
	eventually(t, "no more is stored", func() bool { // looked at every 500 ms: what is stored by then is confirmed as well
		<-time.After(500 * time.Millisecond)
		now := r.stored()
		full := now == before && now > 0
		before = now
		return full
	})
	cancel()
	confirmed := 0
	for _, result := range <-results {
		switch {
		case result.Err == nil:
			confirmed++
		case !errors.Is(result.Err, ErrUnconfirmed):
			t.Errorf("full: %v, want unconfirmed", result.Err)
		}
	}
	if n := r.stored(); n != confirmed || n == 0 || n == 50 {
		t.Errorf("%d confirmed, %d stored: nothing that was accepted may go", confirmed, n)
	}
}

func TestPublisher_NothingOfAPayloadIsPrinted(t *testing.T) {
	t.Parallel()
	m := message(keyOne)
	letter := DeadLetter{Sequence: 7, Reason: job.ReasonInvalid, Payload: m.Payload}
	d := &Delivery{}
	d.msg = m.msg()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		for _, text := range []string{fmt.Sprintf(verb, m), fmt.Sprintf(verb, &m), fmt.Sprintf(verb, letter), fmt.Sprintf(verb, d)} {
			if strings.Contains(text, "Example") || strings.Contains(text, "GB33") || strings.Contains(text, "4578616d706c65") {
				t.Errorf("%s prints %s", verb, text)
			}
		}
	}
}

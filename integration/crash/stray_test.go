package crash

import (
	"fmt"
	"slices"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/paidonce/paidonce/worker/job"
	"github.com/paidonce/paidonce/worker/queue"
)

// TestF8_KilledAroundTheLetterOfAStray: a job that no consumer covers becomes one dead letter, although the worker that buries it is killed before
// and after it is published.
func TestF8_KilledAroundTheLetterOfAStray(t *testing.T) {
	const nowhere = "nowhere"
	server, roles, publisher := openBroker(t, []string{laneRoute(0), nowhere})
	l := newLane(t, 0, server, roles, publisher, false)
	var published []uint64
	stray := func() {
		key := job.NewKey()
		receipt, err := publisher.Publish(t.Context(), queue.Message{Source: source, Route: nowhere, Key: key, Payload: fmt.Appendf(nil, `{"v":1,"key":%q}`, key)})
		if err != nil {
			t.Fatal(err)
		}
		published = append(published, receipt.Sequence)
	}
	for _, point := range []string{"dead_published:before", "dead_published:after"} {
		stray()
		hit := make(chan string, 1)
		armed, err := l.start(order{Point: point, Stray: nowhere}, func(line string) { hit <- line })
		if err != nil {
			t.Fatal(err)
		}
		if line := <-hit; line != "hit "+point {
			t.Fatalf("the worker says %q", line)
		}
		_ = armed.Wait() // by SIGKILL, as it said
	}
	stray() // whoever buries this one has passed over the others
	next, err := l.start(order{}, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	defer next.Kill()
	var letters []uint64
	if err := l.until(t.Context(), func() (bool, error) {
		letters = l.letters(t, nowhere)
		return slices.Contains(letters, published[2]), nil
	}); err != nil {
		t.Error(err)
	}
	slices.Sort(letters)
	if !slices.Equal(letters, published) {
		t.Errorf("letters of the jobs %v, published were %v", letters, published)
	}
}

// letters gives of which jobs of a route there are dead letters.
func (l *lane) letters(t *testing.T, route string) (jobs []uint64) {
	t.Helper()
	nc, err := nats.Connect(l.witness)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	dead, err := queue.NewDeadLetters(nc)
	if err != nil {
		t.Fatal(err)
	}
	for letter, err := range dead.List(t.Context(), queue.DeadFilter{Route: route, Source: source}) {
		if err != nil {
			t.Fatal(err)
		}
		jobs = append(jobs, letter.StreamSequence)
	}
	return jobs
}

package outage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/paidonce/paidonce/bankclient/banksim"
	"github.com/paidonce/paidonce/integration/arena"
	"github.com/paidonce/paidonce/integration/proof"
	"github.com/paidonce/paidonce/integration/stack"
	"github.com/paidonce/paidonce/worker/queue"
)

func TestNATS_KilledUnderLoad(t *testing.T) {
	r := newRig(t, setup{bank: hostile()})
	r.start(t, "", nil)
	end := r.loading(t)
	for range 3 {
		awhile(700 * time.Millisecond)
		r.broker.Kill()
		awhile(300 * time.Millisecond)
		check(t, r.broker.Restart())
	}
	end()
	r.noDeadLettersBut(t, r.prove(t).Dead)
}

// recorded waits until the ledger knows n operations, all of them unfinished.
func (r *rig) recorded(t *testing.T, n int) {
	t.Helper()
	eventually(t, patience, "the ledger knows all of them", func(context.Context) (bool, error) {
		return r.count(t, "SELECT count(*) FROM operations") == n, nil
	})
	if done := r.finished(t); done != 0 {
		t.Fatalf("%d are finished already", done)
	}
}

// busy is a bank that takes nothing for now.
func (r *rig) busy(t *testing.T) (end func()) {
	t.Helper()
	id, err := r.bank.SetFault(banksim.Fault{Name: "unavailable"})
	check(t, err)
	return func() { check(t, r.bank.ClearFault(id)) }
}

// keysOnly is a load without anything that becomes a dead letter: those would be wiped with the rest.
func (r *rig) keysOnly(t *testing.T, keys int) {
	t.Helper()
	m, err := proof.NewMixture([]proof.Lane{{Source: source, Route: route}}, keys, r.seed, time.Now())
	check(t, err)
	r.seed++
	m.Messages = slices.DeleteFunc(m.Messages, func(msg proof.Message) bool { return msg.Kind != proof.Fresh })
	for i := range m.Keys {
		if m.Keys[i].Expired {
			t.Fatal("the mixture holds expired keys: load fewer")
		}
	}
	part, err := proof.Publish(t.Context(), r.publisher, m, func(int) {})
	check(t, err)
	r.all.Keys = append(r.all.Keys, part.Keys...)
}

// TestE8_StreamPurged: what the ledger knows is swept to an end without the broker's help.
func TestE8_StreamPurged(t *testing.T) {
	r := newRig(t, setup{bank: banksim.Options{Calm: true}})
	end := r.busy(t)
	r.start(t, "", nil)
	r.keysOnly(t, 7)
	r.recorded(t, 7)
	stream, err := r.jetstream(t).Stream(t.Context(), "WITHDRAWALS")
	check(t, err)
	check(t, stream.Purge(t.Context()))
	end()
	r.prove(t)
}

// TestE9_StoreWiped: the disk of the broker is gone. The worker that runs sweeps on, without any stream; when the streams are made again, events come.
func TestE9_StoreWiped(t *testing.T) {
	r := newRig(t, setup{bank: banksim.Options{Calm: true}})
	end := r.busy(t)
	r.start(t, "", nil)
	r.keysOnly(t, 7)
	r.recorded(t, 7)
	r.broker.Kill()
	check(t, os.RemoveAll(filepath.Join(r.dir, "nats", "jetstream")))
	check(t, r.broker.Restart())
	end()
	eventually(t, patience, "the sweep finishes all of them without a stream", func(context.Context) (bool, error) { return r.finished(t) == 7, nil })
	r.provision(t)
	r.keysOnly(t, 3)
	r.prove(t)
}

// TestStreamFull: a publisher is told that its job is not stored, nothing is lost silently, and the same publish works when there is room.
func TestStreamFull(t *testing.T) {
	r := newRig(t, setup{bank: banksim.Options{Calm: true}})
	js := r.jetstream(t)
	r.resize(t, js, "WITHDRAWALS", 64<<10)
	r.start(t, "", nil)
	m, err := proof.NewMixture([]proof.Lane{{Source: source, Route: route}}, 300, 1, time.Now())
	check(t, err)
	m.Messages = slices.DeleteFunc(m.Messages, func(msg proof.Message) bool { return msg.Kind != proof.Fresh })
	all := proof.Publication{Keys: m.Keys}
	at := 0
	for ; at < len(m.Messages); at++ {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // only a full stream takes so long
		err = all.Send(ctx, r.publisher, m.Messages[at:at+1])
		cancel()
		if err != nil {
			break
		}
	}
	if at < 20 || at == len(m.Messages) || !errors.Is(err, queue.ErrUnconfirmed) && !errors.Is(err, queue.ErrRefused) {
		t.Fatalf("message %d of a full stream: %v", at, err)
	}
	r.resize(t, js, "WITHDRAWALS", 1<<30)
	check(t, all.Send(t.Context(), r.publisher, m.Messages[at:]))
	r.all = all
	r.prove(t)
}

func (r *rig) resize(t *testing.T, js jetstream.JetStream, name string, maxBytes int64) {
	t.Helper()
	stream, err := js.Stream(t.Context(), name)
	check(t, err)
	config := stream.CachedInfo().Config
	config.MaxBytes = maxBytes
	_, err = js.UpdateStream(t.Context(), config)
	check(t, err)
}

// TestStreamFull_EventsAndDeadLetters: payments go on, what cannot be published is kept, and comes when there is room.
func TestStreamFull_EventsAndDeadLetters(t *testing.T) {
	r := newRig(t, setup{bank: banksim.Options{Calm: true}})
	js := r.jetstream(t)
	r.resize(t, js, "WITHDRAWAL_EVENTS", 2000)
	r.resize(t, js, "WITHDRAWAL_DEAD", 600)
	r.start(t, "", nil)
	r.load(t, 64)
	eventually(t, patience, "payments go on", func(context.Context) (bool, error) { return r.finished(t) == 64, nil })
	if n := r.count(t, "SELECT count(*) FROM outbox"); n == 0 {
		t.Error("the outbox is empty although there was no room for its events")
	}
	r.resize(t, js, "WITHDRAWAL_EVENTS", -1)
	r.resize(t, js, "WITHDRAWAL_DEAD", -1)
	r.noDeadLettersBut(t, r.prove(t).Dead)
}

// TestL4_KilledBetweenCommitAndPublish: the event still comes, once per id.
func TestL4_KilledBetweenCommitAndPublish(t *testing.T) {
	r := newRig(t, setup{bank: banksim.Options{Calm: true, Latency: 300 * time.Millisecond}})
	w := r.start(t, "", nil)
	r.atFirst(t, func() { r.load(t, 16) }, r.broker.Kill) // so that nothing can be published
	eventually(t, patience, "outcomes are committed", func(context.Context) (bool, error) {
		return r.count(t, "SELECT count(*) FROM outbox WHERE type = 'authorized'") > 0, nil
	})
	w.Kill()
	check(t, r.broker.Restart())
	r.start(t, "", nil)
	r.prove(t)
	once := map[string]int{}
	stream, err := r.jetstream(t).Stream(t.Context(), "WITHDRAWAL_EVENTS")
	check(t, err)
	info := stream.CachedInfo()
	for sequence := info.State.FirstSeq; sequence <= info.State.LastSeq; sequence++ {
		msg, err := stream.GetMsg(t.Context(), sequence)
		check(t, err)
		once[msg.Header.Get("Nats-Msg-Id")]++
	}
	for id, n := range once {
		if n != 1 || id == "" {
			t.Errorf("event %q came %d times", id, n)
		}
	}
}

// cluster starts three servers that know each other, and gives their addresses as clients want them.
func cluster(t *testing.T, roles stack.NATSRoles) ([]*stack.NATSProcess, string) {
	t.Helper()
	dir := filepath.Dir(roles.ConfigFile) // what a configuration includes is sought beside it
	var clients, routes []string
	ports := [3]int{}
	for i := range ports {
		var err error
		ports[i], err = stack.FreePort()
		check(t, err)
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", ports[i]))
	}
	started := make(chan error, 3)
	servers := make([]*stack.NATSProcess, 3)
	for i := range servers {
		file := filepath.Join(dir, fmt.Sprintf("n%d.conf", i))
		check(t, os.WriteFile(file, fmt.Appendf(nil, "include ./accounts.conf\nserver_name: n%d\ncluster { name: c, listen: \"127.0.0.1:%d\", routes: [%s] }\n",
			i, ports[i], strings.Join(routes, ", ")), 0o600))
		go func() {
			var err error
			servers[i], err = stack.StartNATSProcess(stack.NATSOptions{Dir: filepath.Join(dir, fmt.Sprintf("n%d", i)), ConfigFile: file})
			started <- err
		}()
	}
	for range servers {
		check(t, <-started)
	}
	for _, s := range servers {
		t.Cleanup(func() { _ = s.Shutdown() })
		clients = append(clients, s.URL())
	}
	return servers, strings.Join(clients, ",")
}

// TestNATS_ClusterLosesItsLeaderUnderLoad kills, each time, the server that leads the jobs stream.
func TestNATS_ClusterLosesItsLeaderUnderLoad(t *testing.T) {
	var servers []*stack.NATSProcess
	r := newRig(t, setup{bank: hostile(), settings: arena.Settings{Replicas: 3}, broker: func(t *testing.T, roles stack.NATSRoles) string {
		var urls string
		servers, urls = cluster(t, roles)
		return urls
	}})
	r.start(t, "", nil)
	r.start(t, "", nil)
	js := r.jetstream(t)
	end := r.loading(t)
	for range 2 {
		awhile(time.Second)
		leader := -1
		eventually(t, patience, "the stream has a leader", func(ctx context.Context) (bool, error) {
			stream, err := js.Stream(ctx, "WITHDRAWALS")
			if err != nil || stream.CachedInfo().Cluster == nil {
				return false, err
			}
			_, err = fmt.Sscanf(stream.CachedInfo().Cluster.Leader, "n%d", &leader)
			return err == nil, err
		})
		servers[leader].Kill()
		awhile(2 * time.Second)
		check(t, servers[leader].Restart())
	}
	awhile(time.Second)
	end()
	r.noDeadLettersBut(t, r.prove(t).Dead)
}

package crash

import (
	"errors"
	"flag"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/paidonce/paidonce/integration/arena"
	"github.com/paidonce/paidonce/integration/stack"
	"github.com/paidonce/paidonce/worker/queue"
)

var (
	allCells = flag.Bool("all", false, "every cell of the matrix instead of a slice")
	oneCell  = flag.String("cell", "", "only the cells whose name contains one of these, separated by commas")
	previous = flag.String("previous", "", "the commit of another version, whose program runs beside in the place of the stand-in; auto: the newest whose worker differs")
	lanes    = flag.Int("lanes", 8, "cells that run at the same time")
)

func TestMain(m *testing.M) {
	if arena.RunChild(prepare) {
		os.Exit(0)
	}
	stack.Alone()
	stack.Main(m)
}

// openBroker starts a broker on which the source may publish to routes, and connects as the source.
func openBroker(t *testing.T, routes []string) (*stack.NATS, stack.NATSRoles, *queue.Publisher) {
	t.Helper()
	roles, err := stack.MakeNATSRoles(t.TempDir(), map[string][]string{source: routes})
	if err != nil {
		t.Fatal(err)
	}
	server := stack.Broker(t, stack.NATSOptions{ConfigFile: roles.ConfigFile})
	nc, err := queue.Connect(server.URL(), queue.ConnectOptions{Role: queue.RolePublisher, Source: source, NKeySeedFile: roles.Publishers[source], Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	publisher, err := queue.NewPublisher(nc, queue.PublisherOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return server, roles, publisher
}

// TestB8_KilledAtEveryStep: SIGKILL at every step of the life of a withdrawal ends in an outcome, or parked with evidence, and pays once.
func TestB8_KilledAtEveryStep(t *testing.T) {
	other := buildOther(t, *previous)
	cells := matrix(*allCells || *oneCell != "")
	cells = slices.DeleteFunc(cells, func(c cell) bool {
		return !slices.ContainsFunc(strings.Split(*oneCell, ","), func(part string) bool { return strings.Contains(c.name(), part) })
	})
	if other == "" {
		cells = slices.DeleteFunc(cells, cell.lostToTheStandIn)
	}
	count := min(*lanes, len(cells))
	var routes []string
	for n := range count {
		routes = append(routes, laneRoute(n))
	}
	nats, roles, publisher := openBroker(t, routes)
	began := time.Now()
	todo := make(chan cell, len(cells))
	for _, c := range cells {
		todo <- c
	}
	close(todo)
	var running sync.WaitGroup
	var keys, parked atomic.Int64
	for n := range count {
		l := newLane(t, n, nats, roles, publisher, n%2 == 1 && other == "") // another version need not know the setting
		l.other = other
		running.Go(func() {
			for c := range todo {
				t.Run(c.name(), func(t *testing.T) {
					err := l.run(t.Context(), c)
					if errors.Is(err, errNotReached) {
						t.Logf("%v; once more", err)
						err = l.run(t.Context(), c)
					}
					if err != nil {
						t.Error(err)
						tell(t, l)
					}
				})
			}
			j, err := l.prove(t.Context())
			if err != nil {
				t.Errorf("%s: %v", l.route, err)
				return
			}
			if !j.Held() {
				t.Errorf("%s: %s\n%s", l.route, j, strings.Join(j.Violations, "\n"))
			}
			keys.Add(int64(j.Keys))
			parked.Add(int64(j.Parked))
		})
	}
	running.Wait()
	t.Logf("%d cells, %d keys, %d parked, twice=0 lost=0 in %.0f s", len(cells), keys.Load(), parked.Load(), time.Since(began).Seconds())
}

// tell shows the end of the workers' log.
func tell(t *testing.T, l *lane) {
	t.Helper()
	text, err := os.ReadFile(l.log.Name())
	if err != nil {
		t.Error(err)
	}
	const most = 3000
	t.Logf("the log ends:\n%s", text[max(0, len(text)-most):])
}

// TestMatrix_EveryPointAndEveryBehaviour: the slice leaves no point and no behaviour out.
func TestMatrix_EveryPointAndEveryBehaviour(t *testing.T) {
	slice, full := matrix(false), matrix(true)
	for _, p := range points() {
		for _, beside := range []bool{false, true} {
			if !slices.ContainsFunc(slice, func(c cell) bool { return c.point == p.name && c.beside == beside }) {
				t.Errorf("%s is left out (beside: %v)", p.name, beside)
			}
		}
	}
	for _, b := range behaviours() {
		if !slices.ContainsFunc(slice, func(c cell) bool { return c.behaviour.name == b.name }) {
			t.Errorf("%s is left out", b.name)
		}
	}
	names := map[string]bool{}
	for _, c := range full {
		names[c.name()] = true
	}
	if len(names) != len(full) || len(full) != 520 { // 17 points under all 12 behaviours, 28 more under 56 in sum; each twice
		t.Errorf("%d cells, %d names", len(full), len(names))
	}
}

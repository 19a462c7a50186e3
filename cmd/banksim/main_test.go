package main

import (
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// output collects what the program prints and tells when a pattern has come.
type output struct {
	mu      sync.Mutex
	text    strings.Builder
	changed chan struct{}
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, err := o.text.Write(p)
	select {
	case o.changed <- struct{}{}:
	default:
	}
	return n, err
}

func (o *output) find(t *testing.T, pattern *regexp.Regexp) []string {
	t.Helper()
	end := time.After(time.Minute)
	for {
		o.mu.Lock()
		found := pattern.FindStringSubmatch(o.text.String())
		o.mu.Unlock()
		if found != nil {
			return found
		}
		select {
		case <-o.changed:
		case <-end:
			t.Fatalf("never printed %s", pattern)
		}
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	read, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(read)
}

func TestStartsSaysWhatItIsAndStops(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	out := &output{changed: make(chan struct{}, 1)}
	ended := make(chan int, 1)
	state := t.TempDir() + "/oracle"
	go func() {
		ended <- run(ctx, []string{"--listen", "127.0.0.1:0", "--control", "127.0.0.1:0", "--calm", "--state", state}, out)
	}()
	found := out.find(t, regexp.MustCompile(`NOT FOR PRODUCTION(?s:.*)calm; reference API on (\S+), control API on (\S+) `))
	if got := get(t, found[1]+"/v1/transfers"); got != `{"error":{"code":"unauthorized"}}` {
		t.Errorf("reference API: %s", got)
	}
	if got := get(t, found[2]+"/oracle/summary"); !strings.HasPrefix(got, `{"requests":1,`) {
		t.Errorf("control API: %s", got)
	}
	stop()
	select {
	case code := <-ended:
		if code != exitOK {
			t.Errorf("exit code %d: %s", code, out.text.String())
		}
	case <-time.After(time.Minute):
		t.Error("does not stop")
	}
}

func TestBadUsage(t *testing.T) {
	for _, args := range [][]string{{"--nope"}, {"word"}, {"--hostility", "2"}, {"--latency", "-1s"}} {
		if code := run(context.Background(), args, io.Discard); code != exitUsage {
			t.Errorf("%v: exit code %d", args, code)
		}
	}
	if code := run(context.Background(), []string{"--help"}, io.Discard); code != exitOK {
		t.Errorf("help: exit code %d", code)
	}
	if code := run(context.Background(), []string{"--listen", "nowhere:x"}, io.Discard); code != exitFailure {
		t.Errorf("bad address: exit code %d", code)
	}
}

func TestHostilityZeroMeansCalm(t *testing.T) {
	f, err := parse([]string{"--hostility", "0"}, io.Discard)
	if err != nil || !f.options.Calm {
		t.Errorf("got %+v, %v", f.options, err)
	}
}

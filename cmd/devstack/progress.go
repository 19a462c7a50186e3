package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/mattn/go-isatty"

	"github.com/paidonce/paidonce/integration/proof"
)

// progress shows how far a run is: one line that changes on a terminal, a line every two seconds elsewhere.
type progress struct {
	out      io.Writer
	terminal bool
	began    time.Time

	mu    sync.Mutex
	shown time.Time
	sent  int
	total int
	last  proof.Standing
	kills int
}

func newProgress(out io.Writer) *progress {
	file, isFile := out.(*os.File)
	return &progress{out: out, terminal: isFile && isatty.IsTerminal(file.Fd()), began: time.Now()}
}

// line prints a line that stays.
func (p *progress) line(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	_, _ = fmt.Fprintf(p.out, "%6.1fs  %s\n", time.Since(p.began).Seconds(), fmt.Sprintf(format, args...))
}

func (p *progress) step(name string) { p.line("start %s", name) }

func (p *progress) expect(messages int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total = messages
}

func (p *progress) published(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent += n
	p.show()
}

func (p *progress) killed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kills++
	p.show()
}

func (p *progress) standing(s proof.Standing) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = s
	p.show()
}

func (p *progress) show() {
	if !p.terminal && time.Since(p.shown) < 2*time.Second {
		return
	}
	p.shown = time.Now()
	p.clear()
	if p.terminal { // which cuts it at its width, since a line that went on to the next row could not be taken back
		_, _ = fmt.Fprint(p.out, "\x1b[?7l")
		defer func() { _, _ = fmt.Fprint(p.out, "\x1b[?7h") }()
	}
	_, _ = fmt.Fprintf(p.out, "%6.1fs  published %d/%d  authorized %d  rejected %d  cancelled %d  parked %d  under way %d (in doubt %d)  queued %d  events to come %d  worker killed %d times",
		time.Since(p.began).Seconds(), p.sent, p.total, p.last.Authorized, p.last.Rejected, p.last.Cancelled, p.last.Parked, p.last.UnderWay, p.last.InDoubt, p.last.Queued, p.last.Unpublished, p.kills)
	if !p.terminal {
		_, _ = fmt.Fprintln(p.out)
	}
}

// clear removes the line that changes.
func (p *progress) clear() {
	if p.terminal {
		_, _ = fmt.Fprint(p.out, "\r\x1b[K")
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/paidonce/paidonce/cmd/internal/app"
	"github.com/paidonce/paidonce/cmd/internal/config"
)

// runWorker is the worker's process: what `paidonce worker --config FILE` runs. It ends when its standard input does, so that it
// does not outlive devstack where the kernel sees to nothing.
func runWorker(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("the worker needs its configuration file")
	}
	settings, err := loadConfig(args[0])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // owned by the process: a read of standard input cannot be interrupted
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return app.RunWorker(ctx, settings, zerolog.New(os.Stderr).With().Timestamp().Logger())
}

func loadConfig(file string) (*config.Config, error) {
	settings, err := config.Load(config.Input{File: file, Rules: app.Rules()})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	return settings, nil
}

// worker is the worker's process as its parent sees it; killed and started again by one goroutine while others ask for it.
type worker struct {
	configFile string
	log        *os.File
	health     string

	mu      sync.Mutex
	child   *child
	stopped bool
}

func startWorker(dir, configFile, health string) (*worker, error) {
	log, err := os.OpenFile(filepath.Join(dir, "worker.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the worker's log: %w", err)
	}
	w := &worker{configFile: configFile, log: log, health: health}
	if w.child, err = startChild(childWorker, []string{configFile}, log); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return w, nil
}

// awaitReady waits until the worker says that it can work.
func (w *worker) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	client := &http.Client{Timeout: time.Second}
	for {
		response, err := client.Get("http://" + w.health + "/readyz")
		if err == nil {
			ready := response.StatusCode == http.StatusOK
			if err := response.Body.Close(); err == nil && ready {
				return nil
			}
		}
		select {
		case <-w.done():
			return w.ended()
		case <-ctx.Done():
			return fmt.Errorf("wait for the worker: %w; its log ends: %s", ctx.Err(), w.logTail())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (w *worker) done() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.child.process.Done()
}

// kill ends the worker by SIGKILL and starts another one. A worker that had ended by itself is an error.
func (w *worker) kill() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return nil
	}
	select {
	case <-w.child.process.Done():
		return w.ended()
	default:
	}
	w.child.kill()
	var err error
	w.child, err = startChild(childWorker, []string{w.configFile}, w.log)
	return err
}

// check says whether the worker has ended by itself.
func (w *worker) check() error {
	select {
	case <-w.done():
		return w.ended()
	default:
		return nil
	}
}

func (w *worker) ended() error {
	return fmt.Errorf("the worker ended by itself; its log ends: %s", w.logTail())
}

func (w *worker) logTail() string {
	const tail = 2000
	text, err := os.ReadFile(w.log.Name())
	if err != nil {
		return "unreadable"
	}
	return string(text[max(0, len(text)-tail):])
}

func (w *worker) stop() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	w.child.stop(workerGrace + time.Second)
	return w.log.Close()
}

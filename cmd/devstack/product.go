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

// runProduct is the process of a worker or a gateway: what `paidonce worker --config FILE` runs, or `paidonce gateway`. It ends when its
// standard input does, so that it does not outlive devstack where the kernel sees to nothing.
func runProduct(ctx context.Context, args []string, run func(context.Context, *config.Config, zerolog.Logger) error) error {
	if len(args) != 2 {
		return errors.New("it needs its configuration file and its address for health")
	}
	settings, err := loadConfig(args[0], args[1])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // owned by the process: a read of standard input cannot be interrupted
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return run(ctx, settings, zerolog.New(os.Stderr).With().Timestamp().Logger())
}

func runGateway(ctx context.Context, c *config.Config, log zerolog.Logger) error {
	return app.RunGateway(ctx, c, log, app.GatewayOptions{})
}

func loadConfig(file, health string) (*config.Config, error) {
	settings, err := config.Load(config.Input{File: file, Flags: map[string]string{"health.listen": health}, Rules: app.Rules()})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	return settings, nil
}

// product is the process of a worker or a gateway as its parent sees it; killed and started again by one goroutine while others ask for it.
type product struct {
	name       string // of the child
	configFile string
	log        *os.File
	health     string

	mu      sync.Mutex
	child   *child
	stopped bool
}

func startProduct(name, dir, configFile, health string) (*product, error) {
	log, err := os.OpenFile(filepath.Join(dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log of the %s: %w", name, err)
	}
	p := &product{name: name, configFile: configFile, log: log, health: health}
	if p.child, err = p.execute(); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return p, nil
}

func (p *product) execute() (*child, error) {
	return startChild(p.name, []string{p.configFile, p.health}, p.log)
}

// awaitReady waits until the process says that it can work.
func (p *product) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	client := &http.Client{Timeout: time.Second}
	for {
		response, err := client.Get("http://" + p.health + "/readyz")
		if err == nil {
			ready := response.StatusCode == http.StatusOK
			if err := response.Body.Close(); err == nil && ready {
				return nil
			}
		}
		select {
		case <-p.done():
			return p.ended()
		case <-ctx.Done():
			return fmt.Errorf("wait for the %s: %w; its log ends: %s", p.name, ctx.Err(), p.logTail())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (p *product) done() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.child.process.Done()
}

// kill ends the process by SIGKILL and starts another one. One that had ended by itself is an error.
func (p *product) kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return nil
	}
	select {
	case <-p.child.process.Done():
		return p.ended()
	default:
	}
	p.child.kill()
	var err error
	p.child, err = p.execute()
	return err
}

// check says whether the process has ended by itself.
func (p *product) check() error {
	select {
	case <-p.done():
		return p.ended()
	default:
		return nil
	}
}

func (p *product) ended() error {
	return fmt.Errorf("the %s ended by itself; its log ends: %s", p.name, p.logTail())
}

func (p *product) logTail() string {
	const tail = 2000
	text, err := os.ReadFile(p.log.Name())
	if err != nil {
		return "unreadable"
	}
	return string(text[max(0, len(text)-tail):])
}

func (p *product) stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
	p.child.stop(workerGrace + time.Second)
	return p.log.Close()
}

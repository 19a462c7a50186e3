package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/paidonce/paidonce/bankclient/banksim"
	"github.com/paidonce/paidonce/integration/proof"
)

// bankSettings are what the bank's process is told on its standard input.
type bankSettings struct {
	Seed         uint64 `json:"seed"`
	Calm         bool   `json:"calm"`
	Port         int    `json:"port"`
	ControlPort  int    `json:"control_port"`
	Token        string `json:"token"`
	CredentialID string `json:"credential_id"`
	DatabaseURL  string `json:"database_url"`
	Book         string `json:"book"` // file of what it did, found again by the next run; empty = in memory alone
}

// bankAddresses are what it answers on its standard output.
type bankAddresses struct {
	URL        string `json:"url"`
	ControlURL string `json:"control_url"`
}

// runBank is the bank's process. It ends when its standard input does.
func runBank(ctx context.Context, in io.Reader, out io.Writer) error {
	reader := bufio.NewReader(in)
	line, err := reader.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read the bank's settings: %w", err)
	}
	var settings bankSettings
	if err := json.Unmarshal(line, &settings); err != nil {
		return fmt.Errorf("read the bank's settings: %w", err)
	}
	pool, err := pgxpool.New(ctx, settings.DatabaseURL)
	if err != nil {
		return errors.New("open the ledger for the bank's check: the URL is not valid")
	}
	defer pool.Close()
	bank := banksim.New(banksim.Options{
		Seed: settings.Seed, Calm: settings.Calm, Tokens: map[string]string{settings.Token: settings.CredentialID},
		BeforeExecute: func(partnerKey string) error {
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			return proof.AttemptCommitted(ctx, pool, partnerKey)
		},
	})
	if settings.Book != "" {
		if err := bank.Remember(settings.Book); err != nil {
			return fmt.Errorf("open the bank's book: %w", err)
		}
	}
	return serveBank(ctx, bank, settings, reader, out)
}

func serveBank(ctx context.Context, bank *banksim.Bank, settings bankSettings, in io.Reader, out io.Writer) error {
	api, err := listen(settings.Port)
	if err != nil {
		return err
	}
	control, err := listen(settings.ControlPort)
	if err != nil {
		return errors.Join(err, api.Close())
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return served(bank.Serve(api)) })
	group.Go(func() error { return served(bank.ServeControl(control)) })
	stdinEnds := make(chan struct{})
	go func() { // owned by the process: a read of standard input cannot be interrupted
		_, _ = io.Copy(io.Discard, in)
		close(stdinEnds)
	}()
	group.Go(func() error {
		select {
		case <-ctx.Done():
		case <-stdinEnds:
		}
		return bank.Close()
	})
	addresses, err := json.Marshal(bankAddresses{URL: "http://" + api.Addr().String(), ControlURL: "http://" + control.Addr().String()})
	if err == nil {
		_, err = fmt.Fprintf(out, "%s\n", addresses)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("say where the bank is: %w", err), bank.Close(), group.Wait())
	}
	return group.Wait()
}

func listen(port int) (net.Listener, error) {
	return net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
}

func served(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// bank is the bank's process as its parent sees it.
type bank struct {
	bankAddresses
	child *child
}

func startBank(settings bankSettings) (*bank, error) {
	text, err := json.Marshal(settings)
	if err != nil {
		return nil, fmt.Errorf("write the bank's settings: %w", err)
	}
	c, err := startChild(childBank, nil, os.Stderr)
	if err != nil {
		return nil, err
	}
	b := &bank{child: c}
	if _, err = fmt.Fprintf(c.stdin, "%s\n", text); err == nil {
		var line string
		if line, err = bufio.NewReader(c.stdout).ReadString('\n'); err == nil {
			err = json.Unmarshal([]byte(line), &b.bankAddresses)
		}
	}
	if err != nil {
		c.stop(time.Second)
		return nil, fmt.Errorf("start the bank: %w", err)
	}
	return b, nil
}

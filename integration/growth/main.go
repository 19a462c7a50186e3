package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/paidonce/paidonce/integration/stack"
)

func main() { stack.Program("growth", run) }

// options are the flags.
type options struct {
	rows     []int
	keys     []string
	seconds  int
	rate     int
	fillers  int
	purge    int
	prove    bool
	pages    bool
	jsonFile string
	dir      string
	pgBin    string
	changes  []string
	settings map[string]string
}

// The kinds of key.
const (
	keysV7 = "v7"
	keysV4 = "v4"
)

func parse(args []string) (options, error) {
	var o options
	set := pflag.NewFlagSet("growth", pflag.ContinueOnError)
	set.IntSliceVar(&o.rows, "rows", []int{1_000_000}, "sizes of the ledger, rising")
	set.StringSliceVar(&o.keys, "keys", []string{keysV7, keysV4}, "kinds of key")
	set.IntVar(&o.seconds, "seconds", 300, "length of each measurement of the hot path")
	set.IntVar(&o.rate, "rate", 3000, "operations per second of the hot path")
	set.IntVar(&o.fillers, "fillers", 2, "connections that fill")
	set.IntVar(&o.purge, "purge", 100_000, "payloads to purge at each size; 0 = none")
	set.BoolVar(&o.prove, "prove", true, "also run `paidonce prove` at each size")
	set.BoolVar(&o.pages, "pages", true, "also tell which relations the full-page images are of (pg_waldump)")
	set.StringVar(&o.jsonFile, "json", "", "also write every measurement to this file, one JSON object per line")
	set.StringVar(&o.dir, "dir", "", "where the server's data lies, about 1.2 kB per operation and 8 GB of WAL; default: the system's temporary directory")
	set.StringVar(&o.pgBin, "pg-bin", "", "server binaries of Postgres; default: found")
	set.StringArrayVar(&o.changes, "change", nil, "SQL that alters the empty schema first, to try another design; repeatable")
	set.StringToStringVar(&o.settings, "set", nil, "settings of the measured server, as wal_compression=lz4; repeatable")
	if err := set.Parse(args); err != nil {
		return o, err
	}
	if len(o.rows) == 0 || len(o.keys) == 0 || o.rows[0] < 1000 || !slices.IsSorted(o.rows) {
		return o, errors.New("sizes must rise from at least 1000")
	}
	for _, kind := range o.keys {
		if kind != keysV7 && kind != keysV4 {
			return o, fmt.Errorf("keys %q: there are v7 and v4", kind)
		}
	}
	if o.seconds < 1 || o.rate < batchSize || o.fillers < 1 || o.purge < 0 || set.NArg() > 0 {
		return o, fmt.Errorf("seconds and fillers must be positive, rate at least %d, and there are no arguments", batchSize)
	}
	return o, nil
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	o, err := parse(args)
	if err != nil {
		return err
	}
	r, err := newReport(o)
	if err != nil {
		return err
	}
	for _, kind := range o.keys {
		if err := grow(ctx, o, kind, r, stack.Say); err != nil {
			return errors.Join(fmt.Errorf("%s: %w", kind, err), r.close())
		}
	}
	if err := r.close(); err != nil {
		return err
	}
	r.print(out)
	return nil
}

// grow measures all sizes under one kind of key. An empty ledger is measured before and after each, since the machine may have got busier meanwhile.
func grow(ctx context.Context, o options, kind string, r *report, say func(string, ...any)) (err error) {
	s, err := openServer(ctx, o, say)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	for _, rows := range o.rows {
		before, err := s.measureEmpty(ctx, kind)
		if err != nil {
			return fmt.Errorf("empty ledger: %w", err)
		}
		say("%s", before.line())
		began := time.Now()
		if err := s.fill(ctx, kind, rows); err != nil {
			return fmt.Errorf("fill to %d: %w", rows, err)
		}
		say("filled to %d under %s keys in %s", rows, kind, time.Since(began).Round(time.Second))
		grown := &measurement{Keys: kind, Rows: rows}
		if err := s.hotPath(ctx, grownDatabase, kind, grown); err != nil {
			return fmt.Errorf("%d rows: %w", rows, err)
		}
		say("%s", grown.line())
		after, err := s.measureEmpty(ctx, kind)
		if err != nil {
			return fmt.Errorf("empty ledger: %w", err)
		}
		say("%s", after.line())
		grown.compare(before, after)
		if err := s.ask(ctx, grown); err != nil {
			return fmt.Errorf("%d rows: %w", rows, err)
		}
		for _, m := range []*measurement{before, grown, after} {
			if err := r.add(m); err != nil {
				return err
			}
		}
	}
	return nil
}

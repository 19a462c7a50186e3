package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/paidonce/paidonce/cmd/internal/cli"
	"github.com/paidonce/paidonce/worker/job"
	"github.com/paidonce/paidonce/worker/queue"
)

func (s *session) events() *cobra.Command {
	return s.group("events", "Look at what was published about withdrawals",
		"  paidonce events tail\n  paidonce events tail --since 1h --type rejected", s.eventsTail())
}

// tail says which events are wanted.
type tail struct {
	route, source, kind string
	since               time.Duration
	all                 bool
	count               int
	follow              bool
}

func (s *session) eventsTail() *cobra.Command {
	t := tail{follow: true}
	command := &cobra.Command{
		Use:   "tail",
		Short: "Print events as they are published, one JSON object a line",
		Long: "Prints the events as they stand in the stream. It consumes nothing: everybody sees the same events. An event may\n" +
			"come twice, under the same event_id; those of one key come in order.",
		Example: "  paidonce events tail\n  paidonce events tail --all --follow=false > events.jsonl\n" +
			"  paidonce events tail --since 1h --source wallet --type authorized --count 10",
		Args: noArgs,
		RunE: s.do(func(ctx context.Context, _ []string) error { return s.tailEvents(ctx, t) }),
	}
	flags := command.Flags()
	flags.StringVar(&t.route, "route", "*", "only this route")
	flags.StringVar(&t.source, "source", "*", "only this source")
	flags.StringVar(&t.kind, "type", "*", "only this type: accepted, authorized, rejected, cancelled, parked, settled, failed, returned or contradicted")
	flags.DurationVar(&t.since, "since", 0, "begin with events of this age (default: with the next one)")
	flags.BoolVar(&t.all, "all", false, "begin with the oldest event")
	flags.IntVar(&t.count, "count", 0, "end after so many (default: never)")
	flags.BoolVar(&t.follow, "follow", true, "go on with what is published later")
	return command
}

func (t tail) check() error {
	for name, text := range map[string]string{"route": t.route, "source": t.source, "type": t.kind} {
		if text != "*" && !job.ValidName(text) {
			return cli.Exit(cli.Usage, fmt.Errorf("--%s: not a name", name))
		}
	}
	if t.all && t.since != 0 || t.since < 0 || t.count < 0 {
		return cli.Exit(cli.Usage, errors.New("give --since or --all, and no negative numbers"))
	}
	return nil
}

func (s *session) tailEvents(ctx context.Context, t tail) error {
	if err := t.check(); err != nil {
		return err
	}
	if err := s.writesOnly("events are one JSON object a line", cli.FormatJSONL); err != nil {
		return err
	}
	c, err := s.load()
	if err != nil {
		return err
	}
	nc, err := s.connect(ctx, c, queue.RoleOperator, "")
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	setting := jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{"withdrawals.events." + t.route + "." + t.source + "." + t.kind}, DeliverPolicy: jetstream.DeliverNewPolicy,
	}
	switch {
	case t.all:
		setting.DeliverPolicy = jetstream.DeliverAllPolicy
	case t.since > 0:
		start := time.Now().Add(-t.since)
		setting.DeliverPolicy, setting.OptStartTime = jetstream.DeliverByStartTimePolicy, &start
	}
	consumer, err := js.OrderedConsumer(ctx, queue.StreamEvents, setting)
	if err != nil {
		return fmt.Errorf("read events: %w", err)
	}
	return s.printEvents(ctx, consumer, t)
}

// printEvents ends when it has printed enough, or, without --follow, when there is nothing more.
func (s *session) printEvents(ctx context.Context, consumer jetstream.Consumer, t tail) error {
	const wait = time.Second
	for printed := 0; ctx.Err() == nil; {
		batch, err := consumer.Fetch(256, jetstream.FetchMaxWait(wait))
		if err != nil {
			return fmt.Errorf("read events: %w", err)
		}
		got := 0
		for message := range batch.Messages() {
			got++
			if t.count > 0 && printed == t.count {
				continue // what came too much; it stays in the stream
			}
			printed++
			if _, err := s.stdout.Write(append(bytes.TrimSpace(message.Data()), '\n')); err != nil {
				return err
			}
		}
		if t.count > 0 && printed == t.count || !t.follow && got == 0 {
			return nil
		}
	}
	return nil
}

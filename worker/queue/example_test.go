package queue_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/paidonce/paidonce/ledger/money"
	"github.com/paidonce/paidonce/worker/job"
	"github.com/paidonce/paidonce/worker/queue"
)

// An upstream system makes the key, stores it beside the withdrawal, and publishes. Whatever happens, it publishes again with that key.
func ExamplePublisher_Enqueue() {
	url, stop := broker()
	defer stop()

	nc, err := queue.Connect(url, queue.ConnectOptions{Role: queue.RolePublisher, Source: "wallet"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer nc.Close()
	publisher, err := queue.NewPublisher(nc, queue.PublisherOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}

	amount, err := money.Parse("49.00", "GBP")
	if err != nil {
		fmt.Println(err)
		return
	}
	withdrawal := job.Job{
		Key:           job.NewKey(), // stored with the withdrawal before it is published
		Source:        "wallet",
		Route:         "gbp-fps",
		DebtorAccount: "cust-4471",
		Amount:        amount,
		Beneficiary:   job.Beneficiary{Name: "A N Example", IBAN: "GB33BUKB20201555555555"},
	}
	for range 2 { // the second time as after a restart that has forgotten whether it published
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		receipt, err := publisher.Enqueue(ctx, withdrawal)
		cancel()
		switch {
		case errors.Is(err, queue.ErrUnconfirmed):
			fmt.Println("publish it again later, with the same key")
		case err != nil:
			fmt.Println(err)
		default:
			fmt.Println("confirmed, duplicate:", receipt.Duplicate)
		}
	}
	// Output:
	// confirmed, duplicate: false
	// confirmed, duplicate: true
}

// Many jobs at once: one result each.
func ExamplePublisher_PublishMany() {
	url, stop := broker()
	defer stop()

	nc, err := queue.Connect(url, queue.ConnectOptions{Role: queue.RolePublisher, Source: "wallet"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer nc.Close()
	publisher, err := queue.NewPublisher(nc, queue.PublisherOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	var messages []queue.Message
	for range 1000 {
		key := job.NewKey()
		payload := fmt.Appendf(nil, `{"v":1,"key":"%s","debtor_account":"cust-4471","amount":"49.00","currency":"GBP",`+
			`"beneficiary":{"name":"A N Example","iban":"GB33BUKB20201555555555"}}`, key)
		messages = append(messages, queue.Message{Source: "wallet", Route: "gbp-fps", Key: key, Payload: payload})
	}
	confirmed := 0
	for _, result := range publisher.PublishMany(context.Background(), messages) {
		if result.Err == nil {
			confirmed++
		}
	}
	fmt.Println(confirmed)
	// Output: 1000
}

// broker starts a server with the topology.
func broker() (url string, stop func()) {
	dir, err := os.MkdirTemp("", "queue-example")
	if err != nil {
		panic(err)
	}
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true})
	if err != nil {
		panic(err)
	}
	s.Start()
	topology, err := queue.NewTopology(queue.TopologyOptions{Routes: []string{"gbp-fps"}})
	if err != nil {
		panic(err)
	}
	nc, err := queue.Connect(s.ClientURL(), queue.ConnectOptions{Role: queue.RoleProvisioner})
	if err != nil {
		panic(err)
	}
	defer nc.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := queue.Provision(ctx, nc, topology); err != nil {
		panic(err)
	}
	return s.ClientURL(), func() { s.Shutdown(); s.WaitForShutdown(); _ = os.RemoveAll(dir) }
}

package app

import (
	"github.com/paidonce/paidonce/bankclient"
	"github.com/paidonce/paidonce/worker"
	"github.com/paidonce/paidonce/worker/queue"
)

// Around lets programs that attack a worker stand between its parts: each function gets a part and gives back what the worker uses in its
// place. Nil functions change nothing. `paidonce worker` leaves all of them nil; a worker and a gateway in one process use two, by which the one
// tells the other what was decided ([RunBoth]).
type Around struct {
	Adapter  func(partner string, a bankclient.Adapter) bankclient.Adapter
	Ledger   func(worker.Ledger) worker.Ledger
	Bank     func(worker.Bank) worker.Bank
	Delivery func(worker.Delivery) worker.Delivery
	Outbox   func(queue.Outbox) queue.Outbox
	Options  func(worker.Options) worker.Options
}

// apply gives a part to its function, if there is one.
func apply[T any](around func(T) T, part T) T {
	if around == nil {
		return part
	}
	return around(part)
}

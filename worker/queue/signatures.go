package queue

import (
	"context"
	"crypto/tls"
	"errors"
	"iter"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"github.com/paidonce/paidonce/worker/job"
)

var errTODO = errors.New("not built yet")

type Difference struct {
	Object string // "stream WITHDRAWALS", "consumer route_gbp-fps"
	Field  string
	Wanted string
	Found  string
	Fatal  bool
}

func Provision(ctx context.Context, nc *nats.Conn, wanted Topology) error { return errTODO }
func Inspect(ctx context.Context, nc *nats.Conn) (Topology, error)        { return Topology{}, errTODO }
func Compare(wanted, found Topology) []Difference                         { return nil }

type Role string

const (
	RolePublisher   Role = "publisher"
	RoleWorker      Role = "worker"
	RoleOperator    Role = "operator"
	RoleProvisioner Role = "provisioner"
)

type ConnectOptions struct {
	Role         Role
	Source       string // of a publisher: makes its inbox prefix its own
	Name         string
	CredsFile    string
	NKeySeedFile string
	TLS          *tls.Config
	Log          zerolog.Logger
}

func Connect(url string, opts ConnectOptions) (*nats.Conn, error) { return nil, errTODO }

type Message struct {
	Source, Route string
	Key           uuid.UUID
	Payload       []byte
	TraceParent   string
	MsgID         string // default job.MsgID
}
type Receipt struct {
	Key       uuid.UUID
	Sequence  uint64
	Duplicate bool
	Attempts  int
}
type Result struct {
	Receipt
	Err error
}
type PublisherOptions struct{ Log zerolog.Logger }
type Publisher struct{}

func NewPublisher(nc *nats.Conn, opts PublisherOptions) (*Publisher, error) { return nil, errTODO }
func (p *Publisher) Enqueue(ctx context.Context, j job.Job) (Receipt, error) {
	return Receipt{}, errTODO
}
func (p *Publisher) Publish(ctx context.Context, m Message) (Receipt, error) {
	return Receipt{}, errTODO
}
func (p *Publisher) PublishMany(ctx context.Context, ms []Message) []Result { return nil }

type Intake interface {
	Acquire(ctx context.Context, max int) (int, error)
	Release(n int)
}
type Handler func(ctx context.Context, d *Delivery)
type ConsumerOptions struct {
	Pullers int           // per route; default 2
	AckWait time.Duration // wanted; a consumer with less is refused
	Grace   time.Duration // of shutdown; default 45s
	Log     zerolog.Logger
}
type Consumer struct{}

func NewConsumer(nc *nats.Conn, dead *DeadLetters, route string, intake Intake, handle Handler, opts ConsumerOptions) (*Consumer, error) {
	return nil, errTODO
}
func (c *Consumer) Run(ctx context.Context) error { return errTODO }

type Delivery struct{}

func (d *Delivery) Origin() job.Origin                    { return job.Origin{} }
func (d *Delivery) Payload() []byte                       { return nil }
func (d *Delivery) Done()                                 {}
func (d *Delivery) Retry(after time.Duration)             {}
func (d *Delivery) Dead(reason job.Reason, detail string) {}

type DeadLetter struct {
	Sequence       uint64
	Route, Source  string
	Reason         job.Reason
	Detail         string
	Deliveries     int
	StreamSequence uint64
	FirstSeen, At  time.Time
	Header         nats.Header
	Payload        []byte
}
type DeadFilter struct {
	Route, Source string
	From          uint64
	Limit         int
}
type DeadLetters struct{}

func NewDeadLetters(nc *nats.Conn) (*DeadLetters, error) { return nil, errTODO }
func (l *DeadLetters) List(ctx context.Context, f DeadFilter) iter.Seq2[DeadLetter, error] {
	return nil
}
func (l *DeadLetters) Show(ctx context.Context, sequence uint64) (DeadLetter, error) {
	return DeadLetter{}, errTODO
}

type Event struct {
	ID, Subject string
	Body        []byte
	TraceParent string
	Ref         int64
}
type Outbox interface {
	Unpublished(ctx context.Context, max int) ([]Event, error)
	MarkPublished(ctx context.Context, refs []int64) error
}
type RelayOptions struct {
	Batch int
	Poll  time.Duration
	Log   zerolog.Logger
}
type Relay struct{}

func NewRelay(nc *nats.Conn, box Outbox, opts RelayOptions) (*Relay, error) { return nil, errTODO }
func (r *Relay) Run(ctx context.Context) error                              { return errTODO }
func (r *Relay) Wake()                                                      {}

type StraysOptions struct {
	Every time.Duration
	Log   zerolog.Logger
}
type Strays struct{}

func NewStrays(nc *nats.Conn, dead *DeadLetters, opts StraysOptions) (*Strays, error) {
	return nil, errTODO
}
func (s *Strays) Run(ctx context.Context) error { return errTODO }

type JanitorOptions struct {
	Window time.Duration // default 7 days
	Every  time.Duration // default 10m
	Log    zerolog.Logger
}
type JanitorReport struct {
	Removed  uint64
	Unserved map[string]uint64 // messages per subject that no consumer covers
}
type Janitor struct{}

func NewJanitor(nc *nats.Conn, opts JanitorOptions) (*Janitor, error) { return nil, errTODO }
func (j *Janitor) Pass(ctx context.Context) (JanitorReport, error)    { return JanitorReport{}, errTODO }
func (j *Janitor) Run(ctx context.Context) error                      { return errTODO }

package banksim

import "time"

type journal struct{}

func (j *journal) clock(time.Duration)                        {}
func (j *journal) close() error                               { return nil }
func (j *journal) refuse(*request, *plan, *record, *reply)    {}
func (j *journal) commit(*request, *plan, *record, *transfer) {}
func (j *journal) request(string, entry)                      {}
func (j *journal) violation(Violation)                        {}

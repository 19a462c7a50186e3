package main

import "context"

const (
	limitConsume  = "consume+ack"
	limitExchange = "exchange"
	limitLedger   = "claim+outcome"
)

func runLimitConsume(context.Context, childSettings, func(childReady) error) error  { return nil }
func runLimitExchange(context.Context, childSettings, func(childReady) error) error { return nil }
func runLimitLedger(context.Context, childSettings, func(childReady) error) error   { return nil }

func (b *bench) limitRound(context.Context, *report) error { return nil }
func (r *report) limit() float64                           { return 0 }

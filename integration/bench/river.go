package main

import "context"

func runRiver(context.Context, childSettings, func(childReady) error) error { return nil }
func prepareRiver(context.Context, *stage) error                            { return nil }
func startRiver(context.Context, *stage, int) (*child, error)               { return nil, nil }
func enqueueRiver(context.Context, *stage, []made) error                    { return nil }

package main

import "context"

func runDBOS(context.Context, childSettings, func(childReady) error) error { return nil }
func prepareDBOS(context.Context, *stage) error                            { return nil }
func startDBOS(context.Context, *stage, int) (*child, error)               { return nil, nil }
func enqueueDBOS(context.Context, *stage, []made) error                    { return nil }

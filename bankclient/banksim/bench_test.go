package banksim_test

import (
	"net/http"
	"net/url"
)

var mustURL = &url.URL{Path: "/v1/transfers"}

type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(int)             {}

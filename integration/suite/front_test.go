package suite

import (
	"bytes"
	"crypto/sha256"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// posted is one POST as it went over the wire.
type posted struct {
	key        string
	credential string
	body       [32]byte
}

// front is an HTTP proxy between a worker and the bank. It keeps what was posted, and may repeat each POST.
type front struct {
	URL    string
	target string
	twice  bool
	last   bool // with twice: the caller gets the second answer instead of the first

	mu    sync.Mutex
	posts []posted
}

func startFront(t *testing.T, w *world, twice, last bool) *front {
	t.Helper()
	f := &front{target: w.bank.URL, twice: twice, last: last}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	f.URL = server.URL
	w.baseURL = f.URL
	if twice {
		w.copies = 2
	}
	return f
}

// ServeHTTP forwards one request, or the same one twice.
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	times := 1
	if r.Method == http.MethodPost {
		f.mu.Lock()
		f.posts = append(f.posts, posted{r.Header.Get("Idempotency-Key"), r.Header.Get("Authorization"), sha256.Sum256(body)})
		f.mu.Unlock()
		if f.twice {
			times = 2
		}
	}
	answers := make([]*answered, times)
	var both sync.WaitGroup
	for i := range times { // at the same time: which of them the bank serves first is open
		both.Go(func() { answers[i] = f.forward(r, body) })
	}
	both.Wait()
	answer := answers[0]
	if f.last {
		answer = answers[times-1]
	}
	if answer == nil {
		panic(http.ErrAbortHandler) // no answer is no answer
	}
	for name, values := range answer.header {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.status)
	_, _ = w.Write(answer.body) // the caller may be gone
}

type answered struct {
	status int
	header http.Header
	body   []byte
}

func (f *front) forward(r *http.Request, body []byte) *answered {
	request, err := http.NewRequest(r.Method, f.target+r.URL.String(), bytes.NewReader(body))
	if err != nil {
		return nil
	}
	request.Header = r.Header.Clone()
	request.GetBody = nil // else the transport itself repeats a request that carries a key
	response, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		return nil
	}
	defer func() { _ = response.Body.Close() }() // only read from
	said, err := io.ReadAll(response.Body)
	if err != nil {
		return nil
	}
	return &answered{response.StatusCode, response.Header, said}
}

func (f *front) seen() []posted {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]posted(nil), f.posts...)
}

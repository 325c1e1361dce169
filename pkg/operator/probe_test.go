package operator_test

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/operator"
)

// TestProbe: a Service that leads nowhere yet is asked again, and one that never leads
// anywhere is told of as it refused.
func TestProbe(t *testing.T) {
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := taken.Addr().String()
	taken.Close()
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := operator.Probe(short, "http://"+address+"/readyz", t.Output()); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("nothing listens: %v", err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), ReadHeaderTimeout: time.Second}
	defer server.Close()
	time.AfterFunc(100*time.Millisecond, func() {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			t.Error(err)
			return
		}
		_ = server.Serve(listener) // it ends with the server
	})
	if err := operator.Probe(t.Context(), "http://"+address+"/readyz", t.Output()); err != nil {
		t.Error(err)
	}
}

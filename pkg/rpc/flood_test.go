package rpc_test

import (
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// TestStrangersArePaced: even with headers that never reach the access check.
func TestStrangersArePaced(t *testing.T) {
	ours := newAuthority(t, cluster)
	c := ours.raw(ours.anonymous(rpc.RegistrationLimits()), nil)
	c.ReadMetaHeaders = nil
	start := time.Now()
	const streams = 60 // 20 more than at once
	for i := range uint32(streams) {
		c.must(c.WriteHeaders(http2.HeadersFrameParam{
			StreamID: 2*i + 1, EndHeaders: true, EndStream: true,
			BlockFragment: c.block(nstancev1.RegistrationService_RegisterAgent_FullMethodName, "x-many", "y", "content-type", "text/plain"),
		}))
	}
	for {
		f, err := c.ReadFrame()
		c.must(err)
		if f.Header().Type == http2.FrameHeaders && f.Header().StreamID == 2*streams-1 {
			break
		}
	}
	if took := time.Since(start); took < 900*time.Millisecond {
		t.Errorf("%d streams were opened in %s", streams, took)
	}
}

// TestFloodsOfFrames: frames without content close their connection.
func TestFloodsOfFrames(t *testing.T) {
	ours := newAuthority(t, cluster)
	addr := serve(t, ours.config())
	for name, send := range map[string]func(*rawClient) error{
		"resets":     func(c *rawClient) error { return c.WriteRSTStream(1, http2.ErrCodeCancel) },
		"empty data": func(c *rawClient) error { return c.WriteData(1, false, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := ours.raw(addr, ours.operator(time.Hour))
			c.call(1, nstancev1.OperatorService_WatchGroups_FullMethodName)
			go func() {
				for send(c) == nil {
				}
			}()
			c.closed()
		})
	}
}

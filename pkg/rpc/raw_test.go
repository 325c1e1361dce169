package rpc_test

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/nstance/nstance/pkg/pki"
)

// rawClient speaks HTTP/2 in ways that no client library does.
type rawClient struct {
	t    *testing.T
	conn *tls.Conn
	*http2.Framer
	headers bytes.Buffer
	encoder *hpack.Encoder
}

// raw connects with these settings.
func (a *authority) raw(addr string, pair *pki.Keypair, settings ...http2.Setting) *rawClient {
	a.t.Helper()
	return a.rawOn(must(net.Dial("tcp", addr))(a.t), pair, settings...)
}

// rawOn is raw on a connection that is there.
func (a *authority) rawOn(conn net.Conn, pair *pki.Keypair, settings ...http2.Setting) *rawClient {
	a.t.Helper()
	config := a.endpoint(pair).Client("127.0.0.1", shard).Clone()
	config.NextProtos = []string{"h2"}
	c := &rawClient{t: a.t, conn: tls.Client(conn, config)}
	a.t.Cleanup(func() { c.conn.Close() })
	c.must(c.conn.SetDeadline(time.Now().Add(patience)))
	c.Framer = http2.NewFramer(c.conn, c.conn)
	c.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.encoder = hpack.NewEncoder(&c.headers)
	_, err := c.conn.Write([]byte(http2.ClientPreface))
	c.must(err)
	c.must(c.WriteSettings(settings...))
	return c
}

func (c *rawClient) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// block encodes the headers of a call, and additional pairs.
func (c *rawClient) block(method string, more ...string) []byte {
	c.t.Helper()
	c.headers.Reset()
	fields := append([]string{":method", "POST", ":scheme", "https", ":path", method, ":authority", "127.0.0.1",
		"content-type", "application/grpc", "te", "trailers"}, more...)
	for i := 0; i < len(fields); i += 2 {
		c.must(c.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}))
	}
	return bytes.Clone(c.headers.Bytes())
}

// call opens a stream.
func (c *rawClient) call(stream uint32, method string, more ...string) {
	c.t.Helper()
	c.must(c.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: c.block(method, more...), EndHeaders: true}))
}

// send sends bytes in frames of the maximum size.
func (c *rawClient) send(stream uint32, data []byte) {
	c.t.Helper()
	for len(data) > 0 {
		n := min(len(data), 16<<10)
		c.must(c.WriteData(stream, false, data[:n]))
		data = data[n:]
	}
}

// framed returns a message with one unknown field of about this size.
func framed(size int) []byte {
	if size == 0 {
		return make([]byte, 5)
	}
	field := binary.AppendUvarint([]byte{0xa2, 0x06}, uint64(size)) // number 100, length-delimited
	field = append(field, make([]byte, size)...)
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(field))), field...)
}

// answer reads until headers of the stream arrive, and returns their status, or an empty
// string.
func (c *rawClient) answer(stream uint32) string {
	c.t.Helper()
	for {
		f, err := c.ReadFrame()
		if err != nil {
			c.t.Fatalf("stream %d has no answer: %v", stream, err)
		}
		if h, ok := f.(*http2.MetaHeadersFrame); ok && h.StreamID == stream {
			for _, field := range h.RegularFields() {
				if field.Name == "grpc-status" {
					return field.Value
				}
			}
			return ""
		}
	}
}

// closed reads until the connection ends.
func (c *rawClient) closed() {
	c.t.Helper()
	for {
		if _, err := c.ReadFrame(); err != nil {
			if timeout, ok := err.(interface{ Timeout() bool }); ok && timeout.Timeout() {
				c.t.Fatal("the connection was not closed")
			}
			return
		}
	}
}

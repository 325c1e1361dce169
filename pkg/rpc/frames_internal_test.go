package rpc

import (
	"bytes"
	"slices"
	"testing"

	"golang.org/x/net/http2"
)

// FuzzFrames: the scanner finds the same frames as an HTTP/2 framer, however the bytes are
// split, as long as the framer reads on.
func FuzzFrames(f *testing.F) {
	var sent bytes.Buffer
	sent.WriteString(http2.ClientPreface)
	framer := http2.NewFramer(&sent, nil)
	_ = framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 16})
	_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}, EndHeaders: true})
	_ = framer.WriteData(1, false, make([]byte, 300))
	_ = framer.WriteDataPadded(1, true, []byte("x"), make([]byte, 7))
	_ = framer.WritePing(false, [8]byte{})
	f.Add(sent.Bytes(), uint8(1))
	f.Add(sent.Bytes(), uint8(200))
	f.Add([]byte("GET / HTTP/1.1\r\nHost: example.com\r\n\r\n"), uint8(9))
	f.Fuzz(func(t *testing.T, data []byte, piece uint8) {
		var cut, whole []frame
		var one, other frameScanner
		other.scan(data, func(h frame) { whole = append(whole, h) })
		for p := range slices.Chunk(data, int(piece)+1) {
			one.scan(p, func(h frame) { cut = append(cut, h) })
		}
		if !slices.Equal(cut, whole) {
			t.Fatalf("cut into pieces of %d: %v, whole: %v", int(piece)+1, cut, whole)
		}
		if len(data) < prefaceLength {
			return
		}
		reader := http2.NewFramer(nil, bytes.NewReader(data[prefaceLength:]))
		reader.SetMaxReadFrameSize(1<<24 - 1)
		reader.AllowIllegalReads = true
		for i := 0; ; i++ {
			h, err := reader.ReadFrameHeader()
			if err != nil {
				return
			}
			want := frame{length: int(h.Length), kind: byte(h.Type), flags: byte(h.Flags), stream: h.StreamID}
			if i >= len(whole) || whole[i] != want {
				t.Fatalf("frame %d: found %v, want %v", i, whole, want)
			}
			if _, err := reader.ReadFrameForHeader(h); err != nil {
				return
			}
		}
	})
}

func TestFrameCost(t *testing.T) {
	for length := range 16<<10 + 1 {
		if cost := frameCost(length); cost <= length || cost < frameCost(length-1) {
			t.Fatalf("a frame of %d bytes costs %d", length, cost)
		}
	}
	for size, passes := range map[int]int{16 << 10: alwaysPasses, 4<<10 - messageHeader: alwaysPassesOfUnknown} {
		for first := range size + messageHeader {
			rest := size + messageHeader - first
			if first > 16<<10 || rest > 16<<10 {
				continue // longer than any frame
			}
			if cost := frameCost(first) + frameCost(rest); cost > passes {
				t.Errorf("a message of %d bytes in frames of %d and %d costs %d, which is more than %d", size, first, rest, cost, passes)
			}
		}
	}
}

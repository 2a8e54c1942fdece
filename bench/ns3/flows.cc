// Sends the flows of `bench.ns3_problem.write_problem` through ns-3, packet by packet.
//
// This file is rocelab's own, under the licence of the kit. It holds nothing of ns-3, which is under
// the GNU GPL, version 2, and which the program that it compiles to links: that program may be given
// away under that licence only. Nothing but `python -m bench.ns3` compiles it, and nothing ships it.
//
// Of ns-3 are the clock and its events, serialisation and propagation (PointToPointNetDevice and
// PointToPointChannel, one for each link), packets and the queue's container. Of this file is what
// ns-3 has no model for: a queue in which ACKs may go first, a NIC that takes the next packet of its
// flows in turn, windows, and cumulative ACKs. No queue has a limit, so nothing is lost.
//
// In: the words of bench/ns3/problem.py. Out: for each flow when its sender had the last ACK, in ps;
// then packets put on links, CPU seconds of the events and of the process, and its peak bytes.

#include "ns3/core-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/ppp-header.h"

#include <algorithm>
#include <ctime>
#include <deque>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

using namespace ns3;

namespace {

constexpr uint16_t kIp = 0x0800;
constexpr uint32_t kPppBytes = 2;  // What ns-3 adds to each packet, and we leave out of its payload.

using Path = std::vector<uint32_t>;

struct Flow {
  uint32_t nic = 0;
  int64_t start_ps = 0;
  uint64_t packets = 0, window = 0, ack_every = 0;
  uint32_t first = 0, middle = 0, last = 0, ack = 0;  // Bytes on the wire.
  bool ack_goes_first = false;
  std::vector<Path> ways, ways_back;  // A packet draws one of several.
  // Of its sender.
  uint64_t next = 0, unacked = 0;
  bool listed = false;
  int64_t end_ps = -1;
  // Of its receiver: what came beyond the first gap, and whether that asked for an ACK.
  uint64_t expected = 0;
  std::vector<char> came, asked;

  bool MaySend() const { return next < packets && next - unacked < window; }
};

// What a packet is, as no header of ns-3 has it.
struct Label : public Tag {
  uint32_t flow = 0, way = 0, hop = 0;
  uint64_t number = 0;  // Of an ACK: the first packet that it does not acknowledge.
  uint8_t is_ack = 0, asks = 0;

  static TypeId GetTypeId() {
    static TypeId id = TypeId("rocelab::Label").SetParent<Tag>().AddConstructor<Label>();
    return id;
  }
  TypeId GetInstanceTypeId() const override { return GetTypeId(); }
  uint32_t GetSerializedSize() const override { return 3 * 4 + 8 + 2; }
  void Serialize(TagBuffer at) const override {
    at.WriteU32(flow), at.WriteU32(way), at.WriteU32(hop), at.WriteU64(number);
    at.WriteU8(is_ack), at.WriteU8(asks);
  }
  void Deserialize(TagBuffer at) override {
    flow = at.ReadU32(), way = at.ReadU32(), hop = at.ReadU32(), number = at.ReadU64();
    is_ack = at.ReadU8(), asks = at.ReadU8();
  }
  void Print(std::ostream& out) const override { out << flow << ' ' << number; }
};

std::vector<Flow> flows;
std::vector<Ptr<PointToPointNetDevice>> senders;  // By send.
std::vector<std::deque<uint32_t>> turns;          // By send: the flows that may send, in turn.
Ptr<UniformRandomVariable> draws;
uint64_t transmissions = 0;

Ptr<Packet> Made(const Label& label, uint32_t wire_bytes) {
  Ptr<Packet> packet = Create<Packet>(wire_bytes - kPppBytes);
  packet->AddPacketTag(label);
  return packet;
}

uint32_t Drawn(const std::vector<Path>& ways) {
  return ways.size() == 1 ? 0 : draws->GetInteger(0, ways.size() - 1);
}

void List(uint32_t number) {
  Flow& flow = flows[number];
  if (flow.listed || !flow.MaySend()) return;
  flow.listed = true;
  turns[flow.nic].push_back(number);
}

// The next packet of the flow whose turn it is at a NIC; none where none may send.
Ptr<Packet> NextOf(uint32_t send) {
  if (turns[send].empty()) return nullptr;
  const uint32_t number = turns[send].front();
  turns[send].pop_front();
  Flow& flow = flows[number];
  flow.listed = false;
  Label label;
  label.flow = number, label.way = Drawn(flow.ways), label.number = flow.next++;
  const bool is_last = flow.next == flow.packets;
  label.asks = is_last || flow.next - flow.unacked == flow.window || flow.next % flow.ack_every == 0;
  const uint32_t size = is_last ? flow.last : label.number == 0 ? flow.first : flow.middle;
  List(number);
  return Made(label, size);
}

// The queue of a port. A NIC's ACKs go first always, and behind its queue are its flows.
class PortQueue : public Queue<Packet> {
 public:
  uint32_t send = 0;
  bool is_nic = false, is_idle = true;

  bool Enqueue(Ptr<Packet> packet) override {
    Label label;
    packet->PeekPacketTag(label);
    if (!label.is_ack || !(is_nic || flows[label.flow].ack_goes_first))
      return DoEnqueue(GetContainer().end(), packet);
    auto place = GetContainer().begin();
    for (uint32_t passed = 0; passed < first_; ++passed) ++place;
    ++first_;
    return DoEnqueue(place, packet);
  }
  Ptr<Packet> Dequeue() override {
    Ptr<Packet> packet = nullptr;
    if (GetNPackets() > 0) {
      packet = DoDequeue(GetContainer().begin());
      if (first_ > 0) --first_;
    } else if (is_nic && (packet = NextOf(send))) {
      PppHeader header;  // As the device adds to what it is given.
      header.SetProtocol(0x0021);
      packet->AddHeader(header);
    }
    is_idle = !packet;
    transmissions += !is_idle;
    return packet;
  }
  Ptr<Packet> Remove() override { return nullptr; }
  Ptr<const Packet> Peek() const override { return DoPeek(GetContainer().begin()); }

 private:
  uint32_t first_ = 0;  // Packets that go first.
};

std::vector<Ptr<PortQueue>> queues;  // By send.

void Transmit(Ptr<Packet> packet, uint32_t send) {
  if (!senders[send]->Send(packet, senders[send]->GetBroadcast(), kIp))
    NS_FATAL_ERROR("a port refused a packet");
}

// Let a NIC that is idle begin.
void Wake(uint32_t send) {
  if (!queues[send]->is_idle) return;
  if (Ptr<Packet> packet = NextOf(send)) Transmit(packet, send);
}

void Begin(uint32_t number) {
  List(number);
  Wake(flows[number].nic);
}

void Acknowledged(const Label& label) {
  Flow& flow = flows[label.flow];
  flow.unacked = std::max(flow.unacked, label.number);
  if (flow.unacked == flow.packets && flow.end_ps < 0)
    flow.end_ps = Simulator::Now().GetPicoSeconds();
  Begin(label.flow);
}

void Arrived(const Label& label) {
  Flow& flow = flows[label.flow];
  flow.came[label.number] = true;
  flow.asked[label.number] = label.asks;
  bool asks = false;
  for (; flow.expected < flow.packets && flow.came[flow.expected]; ++flow.expected)
    asks |= flow.asked[flow.expected];
  if (!asks) return;
  Label answer;
  answer.flow = label.flow, answer.way = Drawn(flow.ways_back), answer.number = flow.expected;
  answer.is_ack = 1;
  Transmit(Made(answer, flow.ack), flow.ways_back[answer.way][0]);
}

bool Receive(Ptr<NetDevice>, Ptr<const Packet> received, uint16_t, const Address&) {
  Ptr<Packet> packet = received->Copy();
  Label label;
  packet->RemovePacketTag(label);
  const Flow& flow = flows[label.flow];
  const Path& path = (label.is_ack ? flow.ways_back : flow.ways)[label.way];
  if (++label.hop < path.size()) {
    packet->AddPacketTag(label);
    Transmit(packet, path[label.hop]);
  } else if (label.is_ack) {
    Acknowledged(label);
  } else {
    Arrived(label);
  }
  return true;
}

// The two sends of a link are two devices on one channel.
void MakeLinks(std::istream& in, uint32_t links) {
  for (uint32_t link = 0; link < links; ++link) {
    uint64_t latency_ps;
    in >> latency_ps;
    Ptr<PointToPointChannel> channel = CreateObject<PointToPointChannel>();
    channel->SetAttribute("Delay", TimeValue(PicoSeconds(latency_ps)));
    for (int side = 0; side < 2; ++side) {
      uint64_t rate_bps;
      in >> rate_bps;
      Ptr<PortQueue> queue = CreateObject<PortQueue>();
      queue->send = senders.size();
      queue->SetMaxSize(QueueSize(QueueSizeUnit::PACKETS, UINT32_MAX));
      Ptr<PointToPointNetDevice> device = CreateObject<PointToPointNetDevice>();
      device->SetAddress(Mac48Address::Allocate());
      device->SetDataRate(DataRate(rate_bps));
      device->SetQueue(queue);
      CreateObject<Node>()->AddDevice(device);
      device->Attach(channel);
      device->SetReceiveCallback(MakeCallback(&Receive));
      senders.push_back(device), queues.push_back(queue);
    }
  }
}

std::vector<Path> ReadWays(std::istream& in, uint32_t ways) {
  std::vector<Path> paths(ways);
  for (Path& path : paths) {
    uint32_t hops;
    in >> hops;
    path.resize(hops);
    for (uint32_t& send : path) in >> send;
  }
  return paths;
}

void Read(std::istream& in) {
  uint32_t links, count, ways, ways_back;
  in >> links >> count;
  MakeLinks(in, links);
  turns.resize(senders.size());
  flows.resize(count);
  for (Flow& flow : flows) {
    in >> flow.start_ps >> flow.packets >> flow.first >> flow.middle >> flow.last >> flow.ack;
    in >> flow.window >> flow.ack_every >> flow.ack_goes_first >> ways >> ways_back;
    flow.ways = ReadWays(in, ways), flow.ways_back = ReadWays(in, ways_back);
    flow.nic = flow.ways.at(0).at(0);
    queues[flow.nic]->is_nic = queues[flow.ways_back.at(0).at(0)]->is_nic = true;
    flow.came.resize(flow.packets), flow.asked.resize(flow.packets);
  }
}

double CpuSeconds() { return double(std::clock()) / CLOCKS_PER_SEC; }

// As getrusage's is at least that of the process that started this one.
uint64_t PeakBytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  uint64_t kib = 0;
  while (status >> word)
    if (word == "VmHWM:") status >> kib;
  return 1024 * kib;
}

}  // namespace

int main(int count, char** words) {
  if (count != 3) return std::cerr << "usage: flows PROBLEM SEED\n", 2;
  Time::SetResolution(Time::PS);
  RngSeedManager::SetSeed(std::stoul(words[2]));
  draws = CreateObject<UniformRandomVariable>();
  std::ifstream in(words[1]);
  Read(in);
  if (!in) return std::cerr << words[1] << ": ends early\n", 1;
  for (uint32_t number = 0; number < flows.size(); ++number)
    Simulator::Schedule(PicoSeconds(flows[number].start_ps), &Begin, number);
  const double begun_s = CpuSeconds();
  Simulator::Run();
  const double run_s = CpuSeconds() - begun_s;
  for (const Flow& flow : flows) std::cout << flow.end_ps << '\n';
  std::cout << transmissions << ' ' << run_s << ' ' << CpuSeconds() << ' ' << PeakBytes() << '\n';
  Simulator::Destroy();
}

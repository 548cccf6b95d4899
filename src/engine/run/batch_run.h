// BatchRun: a batch of the order log on its way through this rank's executor: what all members have agreed upon, with
// this rank's own tensors (or stand-ins, when it has joined). Used by the holder of the driver role only.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "engine/links/process_sets.h"
#include "engine/submit/submissions.h"
#include "negotiation/values/actions.h"

namespace hvd::engine {

struct BatchRun {
  // Before a batch on devices its set's members may have to be introduced, and to tell one another something about it.
  enum class Stage { kIntroduction, kPreparation, kExecution };

  collective::Batch batch;
  std::shared_ptr<ProcessSets::Set> set;
  std::vector<std::unique_ptr<Submitted>> own;                // per tensor; null: this rank has joined and stands in
  std::vector<std::unique_ptr<collective::Block>> stand_ins;  // memory behind the tensors of a joined rank
  std::vector<std::shared_ptr<const negotiation::Request>> agreed;
  negotiation::Parameters parameters;   // in force at its place in the log
  Status unable;                        // why this rank cannot take part
  backend::Backend* backend = nullptr;  // who runs it; set once chosen
  Stage stage = Stage::kExecution;      // what the runner is at
  bool introduced = false;              // the members have been, before this batch
  std::unique_ptr<Runner> runner;       // set once started

  // Takes what `agreed` names: this rank's tensors from `submissions`, by ticket. devices: null if this rank uses none.
  void Fill(const negotiation::ExecuteBatch& agreed, std::shared_ptr<ProcessSets::Set> set, Submissions* submissions,
            int rank, backend::Devices* devices);
  // "allreduce 'x' and 3 more", for reports.
  std::string Describe() const;
};

}  // namespace hvd::engine
